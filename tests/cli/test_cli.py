"""Runs the command line tool as users do: test_cli.py PATH_OF_RLX."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import npy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RLX = sys.argv.pop(1)

LAYER = """
graph layer {
  %0 = Input(){name = "x", dtype = f32, shape = [n, 3]}
  %1 = Param(){name = "w", dtype = f32, shape = [3, 2]}
  %2 = MatMul(%0, %1)
  %3 = Activation(%2){kind = Relu}
  output "y" = %3
}
"""
DOUBLE = """
graph double {{
  %0 = Input(){{name = "x", dtype = {dtype}, shape = {shape}}}
  %1 = Binary(%0, %0){{kind = Add}}
  output "{output}" = %1
}}
"""
# y[t] = log(c[t]) with c[t] = x - t.
LOOP = """
graph loop {
  %0 = Input(){name = "x", dtype = f32, shape = [2]}
  %1, %2 = Scan(%0){body = graph body {
      %0 = Input(){name = "t", dtype = i64, shape = []}
      %1 = Input(){name = "c", dtype = f32, shape = [2]}
      %2 = Constant(){value = f32[] {1}, shape = []}
      %3 = Binary(%1, %2){kind = Sub}
      %4 = Activation(%1){kind = Log}
      output "next" = %3
      output "y" = %4
    }, num_carries = 1, length = 6}
  output "y" = %2
}
"""
CUSTOM = """
graph g {
  %0 = Input(){name = "x", dtype = f32, shape = [2]}
  %1 = Custom(%0){name = "mine", results = [f32[2]]}
  output "y" = %1
}
"""


def philox(counter, key):
    """Philox 4x32-10, written from its paper, as a twin of the library's."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def words(seed, name, count):
    key = 1469598103934665603  # FNV-1a
    for byte in name.encode():
        key = ((key ^ byte) * 1099511628211) % 2**64
    result = []
    for block in range((count + 3) // 4):
        result += philox((block, 0, key & 0xFFFFFFFF, key >> 32), (seed & 0xFFFFFFFF, seed >> 32))
    return result[:count]


class Cli(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def rlx(self, *args):
        return subprocess.run([RLX, *map(str, args)], cwd=self.dir, capture_output=True, text=True,
                              timeout=120, check=False)

    def good(self, *args):
        result = self.rlx(*args)
        self.assertEqual(result.returncode, 0, f"{args}: {result.stdout}{result.stderr}")
        self.assertEqual(result.stderr, "")
        return result.stdout

    def bad(self, code, *args):
        """The error text of a command that must fail with this exit code."""
        result = self.rlx(*args)
        self.assertEqual(result.returncode, code, f"{args}: {result.stdout}{result.stderr}")
        self.assertTrue(result.stderr.startswith("rlx: error: "), result.stderr)
        return result.stderr

    def file(self, name, text):
        (self.dir / name).write_text(text, encoding="utf-8")
        return name

    def array(self, name, dtype, shape, values):
        npy.write(self.dir / name, dtype, shape, values)
        return name

    def layer(self):
        """A graph with known results, and the arguments that run it."""
        self.file("layer.rlx", LAYER)
        self.array("x.npy", "<f4", (2, 3), [1, 2, 3, 4, 5, 6])
        self.array("w.npy", "<f4", (3, 2), [1, 0, 0, 1, 1, -1])
        return ["run", "layer.rlx", "-i", "x=x.npy", "-p", "w=w.npy"]


class Run(Cli):
    def test_known_values(self):
        run = self.layer()
        self.good(*run, "-o", "out")
        self.assertEqual(npy.read(self.dir / "out/y.npy"), ("<f4", (2, 2), [4, 0, 10, 0]))
        self.assertEqual(self.good(*run), "y: f32[2, 2] {4, 0, 10, 0}; min 0, max 10, mean 3.5\n")

    def test_binary_graph_gives_the_same(self):
        run = self.layer()
        text = self.good(*run)
        self.good("inspect", "layer.rlx", "--save", "layer.rlxb")
        self.assertEqual((self.dir / "layer.rlxb").read_bytes()[:8], b"RLXGRAPH")
        run[1] = "layer.rlxb"
        self.assertEqual(self.good(*run), text)

    def test_random_is_philox(self):
        self.file("g.rlx", DOUBLE.format(dtype="f32", shape="[7]", output="y"))
        self.good("run", "g.rlx", "-i", "x=random", "--seed", 2**40 + 5, "-o", "out")
        expected = [2 * (2 * ((w >> 8) / 2**24) - 1) for w in words(2**40 + 5, "x", 7)]
        self.assertEqual(npy.read(self.dir / "out/y.npy")[2], expected)
        self.file("i.rlx", DOUBLE.format(dtype="i32", shape="[9]", output="y"))
        self.good("run", "i.rlx", "-i", "*=random", "-o", "out")
        self.assertEqual(npy.read(self.dir / "out/y.npy")[2],
                         [2 * (w % 10) for w in words(0, "x", 9)])

    def test_seed_and_threads(self):
        self.file("layer.rlx", LAYER)
        run = ["run", "layer.rlx", "-i", "*=random", "-p", "*=random", "--dims", "n=100"]
        results = {}
        for seed, threads in ((1, 1), (1, 3), (2, 1)):
            self.good(*run, "--seed", seed, "--threads", threads, "-o", "out")
            results[seed, threads] = (self.dir / "out/y.npy").read_bytes()
        self.assertEqual(results[1, 1], results[1, 3])
        self.assertNotEqual(results[1, 1], results[2, 1])

    def test_every_dtype_can_be_drawn(self):
        for dtype in "i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128".split():
            self.file("g.rlx", DOUBLE.format(dtype=dtype, shape="[2, 3]", output="y"))
            text = self.good("run", "g.rlx", "-i", "x=random")
            self.assertTrue(text.startswith(f"y: {dtype}[2, 3] {{"), text)

    def test_bf16_travels_as_f32(self):
        self.file("g.rlx", DOUBLE.format(dtype="bf16", shape="[3]", output="y"))
        self.array("x.npy", "<f4", (3,), [1.5, -0.25, 3])
        self.assertIn("bf16[3] as f32", self.good("run", "g.rlx", "-i", "x=x.npy", "-o", "out"))
        self.assertEqual(npy.read(self.dir / "out/y.npy"), ("<f4", (3,), [3, -0.5, 6]))

    def test_names_never_leave_the_folder(self):
        folder = self.dir / "deep"
        folder.mkdir()
        for name, file in (("../../evil", "_._.._evil"), ("/abs", "_abs"),
                           (".hidden", "_hidden"), ("a b", "a_b"), ("", "_")):
            self.file("g.rlx", DOUBLE.format(dtype="f32", shape="[1]", output=name))
            before = set(self.dir.rglob("*"))
            self.good("run", "g.rlx", "-i", "x=random", "-o", "deep/out")
            new = [p for p in set(self.dir.rglob("*")) - before if p.is_file()]
            self.assertEqual(len(new), 1, (name, new))
            self.assertEqual(new[0].parent, folder / "out")
            self.assertEqual(new[0].name, file + ".npy")

    def test_names_that_become_equal_stay_apart(self):
        text = DOUBLE.format(dtype="f32", shape="[1]", output="a/b")
        self.file("g.rlx", text.replace('output "a/b" = %1', 'output "a/b" = %1 output "a_b" = %0'))
        self.array("x.npy", "<f4", (1,), [21])
        self.good("run", "g.rlx", "-i", "x=x.npy", "-o", "out")
        self.assertEqual(npy.read(self.dir / "out/a_b.npy")[2], [42])
        self.assertEqual(npy.read(self.dir / "out/a_b_2.npy")[2], [21])

    def test_passes_plan_and_times(self):
        run = self.layer()
        text = self.good(*run, "--dump-passes", "--plan", "--repeat", 3)
        for part in ("after canonicalize:\ngraph layer {", "after legalize:", "plan layer\n",
                     "input x f32[2, 3]", "y: f32[2, 2] {4, 0, 10, 0}"):
            self.assertIn(part, text)
        self.assertRegex(text, r"median \S+ ms of 3 runs")

    def test_updates_are_shown(self):
        self.file("g.rlx", """graph count {
            %0 = Param(){name = "n", dtype = f32, shape = [2], is_mutable = true}
            %1 = Binary(%0, %0){kind = Add}
            update "n" = %1 }""")
        self.array("n.npy", "<f4", (2,), [3, 4])
        self.assertIn("param n after the run: f32[2] {6, 8}", self.good("run", "g.rlx", "-p", "n=n.npy"))


class RunErrors(Cli):
    def test_missing_inputs_are_listed(self):
        self.layer()
        error = self.bad(1, "run", "layer.rlx", "-p", "*=random")
        self.assertIn("inputs are not given: x", error)
        self.assertIn("-i '*=random'", error)
        self.assertIn("params are not given: w", self.bad(1, "run", "layer.rlx", "-i", "x=x.npy"))

    def test_unknown_and_repeated_names(self):
        run = self.layer()
        self.assertIn("no input 'z'; it has: x", self.bad(1, *run, "-i", "z=random"))
        self.assertIn("'x' is given twice", self.bad(1, *run, "-i", "x=random"))

    def test_wrong_dtype_and_shape(self):
        run = self.layer()
        self.array("x.npy", "<f8", (2, 3), [0] * 6)
        error = self.bad(1, *run)
        self.assertIn("'x'", error)
        self.assertIn("got f64[2, 3]", error)
        self.array("x.npy", "<f4", (2, 4), [0] * 8)
        self.assertIn("got f32[2, 4]", self.bad(1, *run))
        self.array("x.npy", "<f4", (2, 3), [0] * 6)
        self.assertIn("f32[5, 3]", self.bad(1, *run, "--dims", "n=5"))
        self.array("w.npy", "<f4", (2, 2), [0] * 4)
        error = self.bad(1, *run)
        self.assertIn("'w'", error)
        self.assertIn("f32[2, 2]", error)

    def test_symbols(self):
        self.layer()
        run = ["run", "layer.rlx", "-i", "*=random", "-p", "*=random"]
        self.assertIn("not known: n", self.bad(1, *run))
        self.assertIn("no symbolic size 'm'; it has: n", self.bad(1, *run, "--dims", "m=3"))
        self.good(*run, "--dims", "n=0")
        for size in (2**62, 2**63 - 1, 2**50):  # past 64 bits of bytes, or of memory
            self.bad(1, *run, "--dims", f"n={size}")

    def test_bounded_sizes(self):
        self.layer()
        run = ["run", "layer.rlx", "-i", "*=random", "-p", "*=random", "--dims", "n=5"]
        self.good(*run, "-o", "exact")
        self.good(*run, "-o", "bounded", "--bound", "n=64")
        self.assertEqual(npy.read(self.dir / "exact" / "y.npy"),
                         npy.read(self.dir / "bounded" / "y.npy"))
        self.assertIn("for smaller sizes", self.good(*run, "--bound", "n=64", "--plan"))
        self.assertIn("n up to = 4", self.bad(1, *run, "--bound", "n=4"))
        self.assertIn("has the size 'm'", self.bad(1, *run, "--bound", "m=4"))
        self.assertIn("--bound: expected SYMBOL=SIZE", self.bad(2, *run, "--bound", "n"))

    def test_bad_graph_files(self):
        self.layer()
        self.good("inspect", "layer.rlx", "--save", "layer.rlxb")
        whole = (self.dir / "layer.rlxb").read_bytes()
        for length in {0, 1, 7, 8, 9, 63, 64, 65, len(whole) // 2, len(whole) - 1}:
            (self.dir / "cut.rlxb").write_bytes(whole[:length])
            self.assertIn("cut.rlxb", self.bad(1, "inspect", "cut.rlxb"))
        (self.dir / "magic.rlxb").write_bytes(b"RLXGRAPHS" + whole[9:])
        self.bad(1, "inspect", "magic.rlxb")
        (self.dir / "magic.rlxb").write_bytes(b"rlxgraph" + whole[8:])
        self.assertIn("line 1, column 1", self.bad(1, "inspect", "magic.rlxb"))
        self.file("typo.rlx", LAYER.replace("MatMul", "Matmul"))
        self.assertIn("'Matmul' is unknown", self.bad(1, "inspect", "typo.rlx"))
        self.assertIn("none.rlx", self.bad(1, "inspect", "none.rlx"))
        self.assertIn("'.'", self.bad(1, "inspect", "."))

    def test_bad_arrays(self):
        run = self.layer()
        whole = (self.dir / "x.npy").read_bytes()
        (self.dir / "x.npy").write_bytes(whole[:-1])
        self.assertIn("x.npy", self.bad(1, *run))
        (self.dir / "x.npy").write_bytes(b"not an array")
        self.assertIn("x.npy", self.bad(1, *run))
        (self.dir / "x.npy").unlink()
        self.assertIn("x.npy", self.bad(1, *run))

    def test_output_folder_that_is_a_file(self):
        run = self.layer()
        self.assertIn("cannot make the folder", self.bad(1, *run, "-o", "x.npy"))

    def test_full_disk(self):
        run = self.layer()
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([RLX, *run], cwd=self.dir, stdout=full, stderr=subprocess.PIPE,
                                    text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot write", result.stderr)

    def test_usage(self):
        run = self.layer()
        for arguments in ([], ["nonsense"], ["run"], ["run", "layer.rlx", "--nonsense"],
                          [*run, "-i", "x"], [*run, "-i", "=random"], [*run, "-p", "w="],
                          [*run, "-i", "*=x.npy"], [*run, "--dims", "n"], [*run, "--dims", "n=-1"],
                          [*run, "--dims", "n=1,n=2"], [*run, "--threads", "-1"],
                          [*run, "--repeat", "0"], ["inspect", "layer.rlx", "--save", "a.txt"]):
            self.bad(2, *arguments)
        self.assertIn("--repeat", self.good("run", "--help"))


    def test_custom_operators_need_a_program(self):
        self.file("g.rlx", CUSTOM)
        self.assertIn("mine", self.good("inspect", "g.rlx", "--text"))
        self.assertIn("Custom 'mine'(f32[2]): the session has no kernel of this operator for the "
                      "device 'cpu'; it has: none", self.bad(1, "run", "g.rlx", "-i", "x=random"))


class Inspect(Cli):
    def test_overview(self):
        self.layer()
        text = self.good("inspect", "layer.rlx")
        for part in ("graph layer\n", "input x f32[n, 3]\n", "param w f32[3, 2]\n",
                     "output y f32[n, 2]\n", "symbol n\n", "--dims"):
            self.assertIn(part, text)
        text = self.good("inspect", "layer.rlx", "--dims", "n=50")
        self.assertNotIn("symbol", text)
        # 2 * 50 * 3 * 2 flops; x, w and the product once, in 4 bytes each.
        self.assertRegex(text, r"MatMul +1 +600 +1024\n")

    def test_text_round_trip(self):
        self.layer()
        text = self.good("inspect", "layer.rlx", "--text")
        self.good("inspect", "layer.rlx", "--save", "a.rlxb")
        self.good("inspect", "a.rlxb", "--save", "b.rlx")
        self.assertEqual((self.dir / "b.rlx").read_text(encoding="utf-8"), text)
        self.assertEqual(self.good("inspect", "b.rlx", "--text"), text)

    def test_plan_and_report(self):
        self.layer()
        self.assertIn("not known: n", self.bad(1, "inspect", "layer.rlx", "--plan"))
        self.assertIn("plan layer\n", self.good("inspect", "layer.rlx", "--plan", "--dims", "n=4"))
        self.assertRegex(self.good("inspect", "layer.rlx", "--report", "--dims", "n=4"),
                         r"(?s)MatMul .* steps, \d+ barriers")


    def test_bodies_are_shown(self):
        self.file("loop.rlx", LOOP)
        self.assertRegex(self.good("inspect", "loop.rlx"), r"(?s)Activation +1 .*bodies")
        self.assertRegex(self.good("inspect", "loop.rlx", "--report"), r"Scan .*\n  \w+ .*\n?")
        self.assertRegex(self.good("inspect", "loop.rlx", "--report"), r"\nScan .*\n  \w+")
        text = self.good("run", "loop.rlx", "-i", "x=random", "--dump-passes")
        self.assertRegex(text, r"(?s)after legalize:\ngraph loop \{.*Scan.*graph body \{.*Activation")


class Profile(Cli):
    def test_table(self):
        self.file("loop.rlx", LOOP)
        for more in ([], ["--repeat", 3], ["--threads", 2]):
            text = self.good("run", "loop.rlx", "-i", "x=random", "--profile", *more)
            self.assertRegex(text, r"Scan +6 trips")
            # Six runs of the step in the body.
            self.assertRegex(text, r"\d+\.\d\d +\d+\.\d% +6 .*    \w+ +\w+:")
            self.assertRegex(text, r"us in all on \d threads")

    def test_trace(self):
        self.file("loop.rlx", LOOP)
        self.good("run", "loop.rlx", "-i", "x=random", "--trace", "t.json")
        trace = json.loads((self.dir / "t.json").read_text(encoding="utf-8"))
        spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        names = [e["name"] for e in spans]
        self.assertEqual(names.count("Scan"), 1)
        inside = {n for n in names if not re.match("Scan|trip|barrier", n)}
        self.assertTrue(inside)
        self.assertTrue(all(names.count(n) == 6 for n in inside), names)
        self.assertEqual([n for n in names if n.startswith("trip")], [f"trip {i}" for i in range(6)])
        for thread in {e["tid"] for e in spans}:
            track = [e for e in spans if e["tid"] == thread]
            self.assertEqual(track, sorted(track, key=lambda e: e["ts"]))
            ends = []  # of the spans around
            for e in track:
                end = e["ts"] + e["dur"]
                while ends and ends[-1] <= e["ts"] + 5e-4:
                    ends.pop()
                self.assertTrue(all(end <= around + 2e-3 for around in ends), e)
                ends.append(end)
        loop = next(e for e in spans if e["name"] == "Scan")
        for e in spans:
            if e["name"] in inside:
                self.assertGreaterEqual(e["ts"], loop["ts"])
                self.assertLessEqual(e["ts"], loop["ts"] + loop["dur"])
        self.assertIn("none/t.json", self.bad(1, "run", "loop.rlx", "-i", "x=random", "--trace",
                                              "none/t.json"))

    def test_find_nan(self):
        self.file("loop.rlx", LOOP)
        self.array("x.npy", "<f4", (2,), [9, 9])
        run = ["run", "loop.rlx", "-i", "x=x.npy", "--find-nan"]
        self.assertIn("no step makes a NaN or an infinity", self.good(*run))
        self.array("x.npy", "<f4", (2,), [9, 3])
        error = self.bad(1, *run)
        self.assertIn("Scan, trip 3: ", error)
        self.assertIn("makes the first infinity, at [1] of result 0", error)
        self.assertIn("operand 0: f32[2] from 0 to 6", error)


class Diff(Cli):
    def diff(self, code, *args):
        result = self.rlx("diff", *args)
        self.assertEqual(result.returncode, code, f"{args}: {result.stdout}{result.stderr}")
        self.assertEqual(result.stderr, "")
        return result.stdout

    def test_equal_runs(self):
        run = self.layer()[1:]
        for more in (["--no-optimize"], ["--threads", 2], ["--reference"], ["--decompose"],
                     ["--no-fuse"], ["--strict-rounding"]):
            text = self.diff(0, *run, *more)
            self.assertEqual(text, "1 values compared: 0 differ, 0 of them beyond the tolerance\n")
            text = self.diff(0, *run, *more, "--intermediate")
            self.assertIn("3 values compared: 0 differ", text)

    def test_other_graph(self):
        run = self.layer()[1:]
        self.file("tanh.rlx", LAYER.replace("Relu", "Tanh"))
        text = self.diff(1, run[0], "tanh.rlx", *run[1:])
        # 4, -1, 10, -1 before the activation.
        self.assertIn("first: output y f32[2, 2]: 4 of 4 elements differ, most at [1, 0]: 10 against "
                      "1 (absolute 9, relative 0.9,", text)
        self.assertIn("1 values compared: 1 differ, 1 of them beyond", text)
        self.file("other.rlx", LAYER.replace('"w"', '"v"'))
        self.assertIn("does not take the same inputs", self.bad(1, "diff", run[0], "other.rlx",
                                                                *run[1:]))
        self.file("more.rlx", LAYER.replace('output "y"', 'output "z"'))
        self.assertIn("does not give the same outputs", self.bad(1, "diff", run[0], "more.rlx",
                                                                 *run[1:]))

    def test_tolerance(self):
        run = self.layer()[1:]
        scaled = LAYER.replace("%3 = Activation(%2){kind = Relu}", """
            %4 = Constant(){value = f32[] {1.0000002}, shape = []}
            %5 = Activation(%2){kind = Relu}
            %3 = Binary(%5, %4){kind = Mul}""")
        self.file("scaled.rlx", scaled)
        text = self.diff(1, run[0], "scaled.rlx", *run[1:])
        self.assertRegex(text, r"2 of 4 elements differ, most at \[1, 0\].*ulps\)\n")
        text = self.diff(0, run[0], "scaled.rlx", *run[1:], "--ulps", 4)
        self.assertIn("ulps), within the tolerance", text)
        self.assertIn("1 differ, 0 of them beyond", text)

    def test_params_are_those_of_the_start(self):
        self.file("g.rlx", """graph count {
            %0 = Param(){name = "n", dtype = f32, shape = [2], is_mutable = true}
            %1 = Binary(%0, %0){kind = Add}
            update "n" = %1 }""")
        self.assertIn("1 values compared: 0 differ",
                      self.diff(0, "g.rlx", "-p", "n=random", "--no-optimize"))

    def test_sizes_that_runs_set(self):
        graph = """graph first {
            %0 = Input(){name = "x", dtype = f32, shape = [6]}
            %1 = Constant(){value = f32[] {2.5}, shape = []}
            %2 = Compare(%0, %1){kind = Lt}
            %3 = Cast(%2){to = i64}
            %4 = Reduce(%3){axes = [0]}
            %5 = BindSize(%4){symbol = "n", bound = 6}
            %6 = Narrow(%0){length = n}
            %7 = Softmax(%6){axis = 0}
            output "rows" = %6
            output "shares" = %7 }"""
        self.file("first.rlx", graph)
        self.file("more.rlx", graph.replace("2.5", "4.5"))
        self.array("x.npy", "<f4", (6,), [1, 2, 3, 4, 5, 6])
        run = ["first.rlx", "-i", "x=x.npy"]
        self.assertIn("rows: f32[2] {1, 2}", self.good("run", *run))
        for more in (["--no-optimize"], ["--threads", 2], ["--reference"], ["--decompose"]):
            text = self.diff(0, *run, *more, "--ulps", 4)
            self.assertIn("2 values compared", text)
            self.assertIn("8 values compared", self.diff(0, *run, *more, "--ulps", 4,
                                                         "--intermediate"))
        self.assertEqual(self.diff(1, run[0], "more.rlx", *run[1:]),
                         "first: output rows f32[2]: the other one has the shape [4]\n"
                         "output shares f32[2]: the other one has the shape [4]\n"
                         "2 values compared: 2 differ, 2 of them beyond the tolerance\n")

    def test_usage(self):
        run = self.layer()[1:]
        self.assertIn("the two runs are the same", self.bad(2, "diff", *run))


class Machine(Cli):
    def test_devices(self):
        self.assertRegex(self.good("devices"), r"^cpu: \d+ threads, \w+, \d+ KiB L2 cache per core\n$")

    def test_coverage(self):
        last = self.good("coverage").splitlines()[-1]
        found = re.fullmatch(r"cpu: (\d+) native \((\d+) structural, (\d+) alias\), "
                             r"(\d+) decomposed, (\d+) missing of 183", last)
        self.assertTrue(found, last)
        native, structural, alias, decomposed, missing = map(int, found.groups())
        self.assertEqual(native + decomposed + missing, 183)
        self.assertGreater(native, structural + alias)
        full = self.good("coverage", "--all")
        self.assertEqual(full.splitlines()[-1], last)
        self.assertEqual(len(re.findall(r"^\w+ +planned ", full, re.M)), missing)

    def test_coverage_page_is_up_to_date(self):
        page = (ROOT / "docs/coverage.md").read_text(encoding="utf-8")
        self.assertEqual(page, self.good("coverage", "--markdown"),
                         "run: build/release/bin/rlx coverage --markdown > docs/coverage.md")


if __name__ == "__main__":
    unittest.main()

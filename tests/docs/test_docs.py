"""Pages against the code that they show."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")])


def text_of(path):
    return path.read_text(encoding="utf-8")


class Docs(unittest.TestCase):
    def test_readme_shows_the_quickstart(self):
        blocks = re.findall(r"```cpp\n(.*?)```", text_of(ROOT / "README.md"), re.S)
        self.assertEqual(len(blocks), 1)
        self.assertEqual(blocks[0], text_of(ROOT / "examples/quickstart/main.cc"),
                         "copy examples/quickstart/main.cc into README.md")

    def test_links_lead_somewhere(self):
        links = 0
        for page in PAGES:
            for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text_of(page)):
                if re.match(r"[a-z]+:", target):
                    continue
                links += 1
                self.assertTrue((page.parent / target).exists(), f"{page.name} links to {target}")
        self.assertGreater(links, 5)

    def test_paths_in_pages_exist(self):
        """Paths in backticks that begin with a folder of the project."""
        folders = {p.name for p in ROOT.iterdir() if p.is_dir()} - {"build"}
        paths = 0
        for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs/architecture.md"):
            for path in re.findall(r"`([\w.-]+/[\w./-]*)`", text_of(page)):
                if path.split("/")[0] in folders:
                    paths += 1
                    self.assertTrue((ROOT / path).exists(), f"{page.name} names {path}")
        self.assertGreater(paths, 10)


if __name__ == "__main__":
    unittest.main()

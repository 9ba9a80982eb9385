#include "rlx/base/cpu_info.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace rlx {
namespace {

// A description of a system's control groups under a folder that is removed at the end.
class FakeRoot {
 public:
  FakeRoot() {
    std::string name = (std::filesystem::temp_directory_path() / "rlx-cgroup-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }

  void write(const std::string& path, const std::string& text) const {
    const std::string file = path_ + path;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream(file) << text;
  }
  int width() const { return detail::cgroup_width(path_); }

 private:
  std::string path_;
};

constexpr const char* kMountV2 =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(CpuInfo, NoFilesMeansNoQuota) { EXPECT_EQ(FakeRoot().width(), 0); }

TEST(CpuInfo, QuotaV2RoundsUp) {
  FakeRoot root;
  root.write("/proc/self/mountinfo", kMountV2);
  root.write("/proc/self/cgroup", "0::/app\n");
  root.write("/sys/fs/cgroup/app/cpu.max", "max 100000\n");
  EXPECT_EQ(root.width(), 0);
  root.write("/sys/fs/cgroup/app/cpu.max", "250000 100000\n");
  EXPECT_EQ(root.width(), 3);
  root.write("/sys/fs/cgroup/app/cpu.max", "200000 100000\n");
  EXPECT_EQ(root.width(), 2);
  root.write("/sys/fs/cgroup/app/cpu.max", "1000 100000\n");
  EXPECT_EQ(root.width(), 1);
}

TEST(CpuInfo, QuotaV2TakesTheSmallestLevel) {
  FakeRoot root;
  root.write("/proc/self/mountinfo", kMountV2);
  root.write("/proc/self/cgroup", "0::/slice/app/job\n");
  root.write("/sys/fs/cgroup/slice/app/job/cpu.max", "800000 100000\n");
  root.write("/sys/fs/cgroup/slice/cpu.max", "400000 100000\n");
  EXPECT_EQ(root.width(), 4);
}

TEST(CpuInfo, QuotaV1InAContainer) {
  FakeRoot root;
  root.write("/proc/self/mountinfo",
             "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
             "33 31 0:31 /docker/abc /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
  root.write("/proc/self/cgroup", "4:cpuset:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n");
  root.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  root.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(root.width(), 2);
  root.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(root.width(), 0);
}

TEST(CpuInfo, BrokenFilesAreNoQuota) {
  FakeRoot root;
  root.write("/proc/self/mountinfo", std::string("nonsense\n - \n") + kMountV2);
  root.write("/proc/self/cgroup", "nonsense\n0::\n::\n");
  for (const char* text : {"", "\n", "x y\n", "100000\n", "100000 0\n", "-5 100000\n"}) {
    root.write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(root.width(), 0) << text;
  }
}

TEST(CpuInfo, DefaultWidth) {
  const int width = default_width();
  EXPECT_GE(width, 1);
  EXPECT_LE(width, static_cast<int>(std::thread::hardware_concurrency()));
}

#if defined(__linux__)
TEST(CpuInfo, DefaultWidthFollowsTheAffinityMask) {
  int width = 0;
  bool pinned = false;
  std::thread([&] {  // the mask is the thread's own and goes with it
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    }
    pinned = sched_setaffinity(0, sizeof one, &one) == 0;
    width = default_width();
  })
      .join();
  ASSERT_TRUE(pinned);
  EXPECT_EQ(width, 1);
}
#endif

TEST(CpuInfo, L2IsPlausible) {
  EXPECT_GE(l2_bytes(), size_t{32} << 10);
  EXPECT_LE(l2_bytes(), size_t{1} << 30);
}

}  // namespace
}  // namespace rlx

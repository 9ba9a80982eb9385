#include "rlx/base/cpu_info.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace rlx {
namespace {

constexpr size_t kDefaultL2Bytes = size_t{1} << 20;

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

bool list_has(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

int whole_cpus(int64_t quota_us, int64_t period_us) {
  if (quota_us <= 0 || period_us <= 0) return 0;
  const int64_t cpus = quota_us / period_us + (quota_us % period_us != 0 ? 1 : 0);
  return static_cast<int>(std::min<int64_t>(cpus, INT_MAX));
}

// Quota of one group's folder; 0 if unlimited, absent or unreadable.
int quota_v1(const std::string& folder) {
  const auto quota = first_line(folder + "/cpu.cfs_quota_us");
  const auto period = first_line(folder + "/cpu.cfs_period_us");
  if (!quota || !period) return 0;
  int64_t quota_us = 0, period_us = 0;
  if (!(std::istringstream(*quota) >> quota_us)) return 0;
  if (!(std::istringstream(*period) >> period_us)) return 0;
  return whole_cpus(quota_us, period_us);
}

int quota_v2(const std::string& folder) {
  const auto line = first_line(folder + "/cpu.max");
  if (!line) return 0;
  int64_t quota_us = 0, period_us = 0;
  if (!(std::istringstream(*line) >> quota_us >> period_us)) return 0;  // "max 100000"
  return whole_cpus(quota_us, period_us);
}

// The smallest quota from the process's group up to the root of its mount: each level binds.
int smallest_quota(const std::string& mount, std::string group, int (*quota)(const std::string&)) {
  int smallest = 0;
  for (;;) {
    const int here = quota(mount + group);
    if (here > 0 && (smallest == 0 || here < smallest)) smallest = here;
    if (group.empty()) return smallest;
    group.resize(group.rfind('/'));
  }
}

struct Groups {
  std::string v1, v2;  // path of the process's group; empty for the root
};

Groups groups_of_self(const std::string& root) {
  Groups groups;
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/" || path.empty() || path[0] != '/') path.clear();
    if (controllers.empty()) groups.v2 = path;
    if (list_has(controllers, "cpu")) groups.v1 = path;
  }
  return groups;
}

// The group's path below a mount that shows the hierarchy from `mounted` on. A container often
// shows only its own part under a path that it cannot see; then the mount's root is the group.
std::string below_mount(const std::string& group, const std::string& mounted) {
  if (mounted == "/") return group;
  if (group.compare(0, mounted.size(), mounted) != 0) return "";
  const std::string rest = group.substr(mounted.size());
  return rest.empty() || rest[0] == '/' ? rest : "";
}

#if defined(__linux__)
int affinity_width() {
  for (int cpus = CPU_SETSIZE; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpus));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    const bool too_small = !ok && errno == EINVAL;
    const int count = ok ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (ok) return std::max(count, 1);
    if (!too_small) break;
  }
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

size_t l2_from_sysfs() {
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    if (first_line(folder + "level") != "2") continue;
    const auto size = first_line(folder + "size");  // such as 2048K
    size_t amount = 0;
    char unit = 0;
    if (!size) continue;
    std::istringstream in(*size);
    if (!(in >> amount)) continue;
    in >> unit;
    return unit == 'M' ? amount << 20 : unit == 'K' ? amount << 10 : amount;
  }
  return 0;
}
#endif

}  // namespace

int detail::cgroup_width(const std::string& root) {
  const Groups groups = groups_of_self(root);
  int smallest = 0;
  std::ifstream in(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    // id parent device root mount-point options [tags...] - type source super-options
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::string id, parent, device, mounted, point, type, source, options;
    std::istringstream(line.substr(0, dash)) >> id >> parent >> device >> mounted >> point;
    std::istringstream(line.substr(dash + 3)) >> type >> source >> options;
    int here = 0;
    if (type == "cgroup2") {
      here = smallest_quota(root + point, below_mount(groups.v2, mounted), quota_v2);
    } else if (type == "cgroup" && list_has(options, "cpu")) {
      here = smallest_quota(root + point, below_mount(groups.v1, mounted), quota_v1);
    }
    if (here > 0 && (smallest == 0 || here < smallest)) smallest = here;
  }
  return smallest;
}

#if defined(__linux__)

int default_width() {
  const int by_affinity = affinity_width();
  const int by_quota = detail::cgroup_width("");
  return by_quota > 0 ? std::min(by_affinity, by_quota) : by_affinity;
}

size_t l2_bytes() {
  const long told = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (told > 0) return static_cast<size_t>(told);
  const size_t listed = l2_from_sysfs();
  return listed > 0 ? listed : kDefaultL2Bytes;
}

#else

int default_width() { return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1); }

size_t l2_bytes() { return kDefaultL2Bytes; }

#endif

}  // namespace rlx

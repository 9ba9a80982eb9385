#pragma once

#include <cstddef>
#include <string>

namespace rlx {

// Number of threads this process may keep busy: the calling thread's affinity mask, or the
// processor quota of its control groups (versions 1 and 2, rounded up) if that is smaller. At least
// 1. Reads files: ask when setting up, not per run.
int default_width();

// Size of one core's second-level cache in bytes; 1 MiB if the system does not tell.
size_t l2_bytes();

namespace detail {

// The control groups' processor quota in whole processors, rounded up; 0 if there is none. `root`
// is put before every path read ("" for the real system), so that tests can describe one.
int cgroup_width(const std::string& root);

}  // namespace detail
}  // namespace rlx

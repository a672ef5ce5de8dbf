// What compiled kernels and the launcher call: fibers in lock step, guarded buffers, checks.
#pragma once
#include <stddef.h>
#include <stdint.h>

extern "C" {

enum { RT_LANES = 32, RT_SLOT_BYTES = 32, RT_MAX_THREADS = 1024 };

// Positions of one thread, as Metal's attributes give them.
struct rt_position {
  uint32_t thread_position_in_grid[3];
  uint32_t thread_position_in_threadgroup[3];
  uint32_t threadgroup_position_in_grid[3];
  uint32_t threads_per_threadgroup[3];
  uint32_t dispatch_threads_per_threadgroup[3];
  uint32_t threadgroups_per_grid[3];
  uint32_t threads_per_grid[3];
  uint32_t thread_index_in_threadgroup;
  uint32_t simdgroups_per_threadgroup;
  uint32_t dispatch_simdgroups_per_threadgroup;
};

// What the lanes of one simdgroup hand each other in one collective operation.
struct rt_row {
  alignas(32) unsigned char slot[RT_LANES][RT_SLOT_BYTES];
  alignas(32) unsigned char result[RT_SLOT_BYTES];
  uint32_t active;   // bit i: lane i took part
  uint32_t reduced;  // `result` is computed
};

typedef void (*rt_entry)(void* const* buffers, const rt_position* position);

// Called by kernels through the shim. `line` is the line of the call in the kernel's text.
rt_row* rt_exchange(const void* value, unsigned bytes, const char* operation, int line);
void rt_barrier(int whole_group, unsigned flags, int line);
unsigned rt_lane(void);
void* rt_threadgroup(int index, size_t bytes, size_t align, const char* name);
void rt_atomic_load(const volatile void* address, void* value, unsigned bytes);
void rt_atomic_store(volatile void* address, const void* value, unsigned bytes);
void rt_fail(const char* message, int line);
}

// Runs the threads of one group after another until each waits in a collective or has returned.
//
// A lane runs alone up to a collective. When every lane of its simdgroup waits at the same
// operation and line, all go on; a threadgroup barrier is the same over the group. Anything else
// is divergence. Between collectives lanes are not in lock step but one after another, which is
// stricter than hardware: a forgotten simdgroup_barrier shows.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <initializer_list>

#include "internal.h"

runtime rt;
static sigjmp_buf leave;
static volatile sig_atomic_t running;

[[noreturn]] void fail(uintptr_t code_address, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(rt.error, sizeof rt.error, format, arguments);
  va_end(arguments);
  rt.error_address = code_address;
  running = 0;
  siglongjmp(leave, 1);
}

extern "C" void rt_fail(const char* message, int line) {
  fail((uintptr_t)__builtin_return_address(0), "%s, line %d", message, line);
}

extern "C" unsigned rt_lane(void) { return (unsigned)rt.current % RT_LANES; }

static void wait_here(lane_state state, const char* operation, int line) {
  lane& me = rt.lanes[rt.current];
  me.state = state;
  me.operation = operation;
  me.line = line;
  fiber_switch(&me.context, &rt.scheduler);
}

extern "C" rt_row* rt_exchange(const void* value, unsigned bytes, const char* operation, int line) {
  lane& me = rt.lanes[rt.current];
  rt_row& row = rt.groups[rt.current / RT_LANES].rows[me.n_exchanges++ & 1];
  memcpy(row.slot[rt.current % RT_LANES], value, bytes);
  wait_here(LANE_AT_SIMD, operation, line);
  return &row;
}

enum { FLAG_DEVICE = 1, FLAG_THREADGROUP = 2 };

extern "C" void rt_barrier(int whole_group, unsigned flags, int line) {
  static const char* const group_names[4] = {
      "threadgroup_barrier(none)", "threadgroup_barrier(mem_device)",
      "threadgroup_barrier(mem_threadgroup)", "threadgroup_barrier(both)"};
  static const char* const simd_names[4] = {
      "simdgroup_barrier(none)", "simdgroup_barrier(mem_device)",
      "simdgroup_barrier(mem_threadgroup)", "simdgroup_barrier(both)"};
  wait_here(whole_group ? LANE_AT_BARRIER : LANE_AT_SIMD,
            (whole_group ? group_names : simd_names)[flags & 3], line);
}

static void run_lane(void) {
  rt.entry(rt.arguments, &rt.lanes[rt.current].position);
  lane& me = rt.lanes[rt.current];
  me.state = LANE_DONE;
  for (;;) fiber_switch(&me.context, &rt.scheduler);
}

static void describe_lane(int index, char* text, size_t bytes) {
  const lane& l = rt.lanes[index];
  if (l.state == LANE_DONE) {
    snprintf(text, bytes, "thread %d has returned", index);
  } else {
    snprintf(text, bytes, "thread %d waits in %s at line %d", index, l.operation, l.line);
  }
}

static void divergence(int first, int second) {
  char one[200], two[200];
  describe_lane(first, one, sizeof one);
  describe_lane(second, two, sizeof two);
  fail(0, "divergence: %s, %s", one, two);
}

// Indices 0..n-1 in the wanted order: 0 ascending, 1 descending, 2 random.
static uint64_t random_state;
static uint32_t next_random() {
  random_state ^= random_state << 13;  // xorshift64 (Marsaglia 2003)
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)(random_state >> 32);
}

static void fill_order(int* order, int n, int kind) {
  for (int i = 0; i < n; ++i) order[i] = kind == 1 ? n - 1 - i : i;
  if (kind != 2) return;
  for (int i = n - 1; i > 0; --i) {
    int j = (int)(next_random() % (uint32_t)(i + 1));
    int kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
}

// Run one simdgroup until its lanes all wait at a threadgroup barrier or have returned.
static void run_simdgroup(int index, int order_kind) {
  int first = index * RT_LANES;
  int n = rt.n_lanes - first < RT_LANES ? rt.n_lanes - first : RT_LANES;
  int order[RT_LANES];
  for (;;) {
    fill_order(order, n, order_kind);
    for (int i = 0; i < n; ++i) {
      lane& l = rt.lanes[first + order[i]];
      if (l.state != LANE_READY) continue;
      rt.current = first + order[i];
      fiber_switch(&rt.scheduler, &l.context);
    }
    int leader = -1;
    uint32_t active = 0;
    for (int i = 0; i < n; ++i) {
      const lane& l = rt.lanes[first + i];
      if (l.state == LANE_DONE && rt.allow_return) continue;
      active |= 1u << i;
      if (leader < 0) {
        leader = first + i;
        continue;
      }
      const lane& other = rt.lanes[leader];
      bool same = l.state == other.state && (l.state == LANE_DONE ||
                  (l.line == other.line && l.operation == other.operation));
      if (!same) divergence(leader, first + i);
    }
    if (leader < 0 || rt.lanes[leader].state != LANE_AT_SIMD) return;
    simdgroup& group = rt.groups[index];
    const char* operation = rt.lanes[leader].operation;
    if (strncmp(operation, "simdgroup_barrier", 17) == 0) {
      group.device_epoch += strstr(operation, "device") || strstr(operation, "both");
      group.threadgroup_epoch += strstr(operation, "mem_thread") || strstr(operation, "both");
    } else {
      rt_row& row = group.rows[(rt.lanes[leader].n_exchanges - 1) & 1];
      row.active = active;
      row.reduced = 0;
    }
    for (int i = 0; i < n; ++i) {
      if (rt.lanes[first + i].state == LANE_AT_SIMD) rt.lanes[first + i].state = LANE_READY;
    }
  }
}

static void run_group(int order_kind) {
  int n_groups = (rt.n_lanes + RT_LANES - 1) / RT_LANES;
  int order[RT_MAX_THREADS / RT_LANES];
  for (;;) {
    fill_order(order, n_groups, order_kind);
    for (int i = 0; i < n_groups; ++i) run_simdgroup(order[i], order_kind);
    int leader = -1;
    for (int i = 0; i < rt.n_lanes; ++i) {
      const lane& l = rt.lanes[i];
      if (l.state == LANE_DONE && rt.allow_return) continue;
      if (leader < 0) {
        leader = i;
        continue;
      }
      const lane& other = rt.lanes[leader];
      bool same = l.state == other.state && (l.state == LANE_DONE ||
                  (l.line == other.line && l.operation == other.operation));
      if (!same) divergence(leader, i);
    }
    if (leader < 0 || rt.lanes[leader].state == LANE_DONE) return;
    const char* operation = rt.lanes[leader].operation;
    rt.device_epoch += strstr(operation, "device") || strstr(operation, "both");
    rt.threadgroup_epoch += strstr(operation, "mem_thread") || strstr(operation, "both");
    for (int i = 0; i < rt.n_lanes; ++i) {
      if (rt.lanes[i].state == LANE_AT_BARRIER) rt.lanes[i].state = LANE_READY;
    }
  }
}

static void prepare_group(const uint32_t grid[3], const uint32_t shape[3], const uint32_t at[3],
                          const uint32_t n_groups[3]) {
  uint32_t here[3];
  for (int a = 0; a < 3; ++a) {
    uint32_t left = grid[a] - at[a] * shape[a];
    here[a] = left < shape[a] ? left : shape[a];  // groups at the edge are smaller
  }
  rt.n_lanes = (int)(here[0] * here[1] * here[2]);
  rt.group_index = at[0] + n_groups[0] * (at[1] + n_groups[1] * at[2]);
  rt.device_epoch = rt.threadgroup_epoch = 1;
  for (auto& group : rt.groups) group.device_epoch = group.threadgroup_epoch = 1;
  for (int i = 0; i < rt.n_lanes; ++i) {
    lane& l = rt.lanes[i];
    uint32_t t[3] = {(uint32_t)i % here[0], (uint32_t)i / here[0] % here[1],
                     (uint32_t)i / here[0] / here[1]};
    rt_position& p = l.position;
    for (int a = 0; a < 3; ++a) {
      p.thread_position_in_grid[a] = at[a] * shape[a] + t[a];
      p.thread_position_in_threadgroup[a] = t[a];
      p.threadgroup_position_in_grid[a] = at[a];
      p.threads_per_threadgroup[a] = here[a];
      p.dispatch_threads_per_threadgroup[a] = shape[a];
      p.threadgroups_per_grid[a] = n_groups[a];
      p.threads_per_grid[a] = grid[a];
    }
    p.thread_index_in_threadgroup = (uint32_t)i;
    p.simdgroups_per_threadgroup = ((uint32_t)rt.n_lanes + RT_LANES - 1) / RT_LANES;
    p.dispatch_simdgroups_per_threadgroup =
        (shape[0] * shape[1] * shape[2] + RT_LANES - 1) / RT_LANES;
    l.state = LANE_READY;
    l.n_exchanges = 0;
    // The first page of each stack is forbidden: an endless recursion faults.
    fiber_prepare(&l.context, rt.stacks + (size_t)i * STACK_BYTES, STACK_BYTES, run_lane);
  }
}

static uintptr_t program_counter(void* context) {
#if defined(__x86_64__) && defined(__linux__)
  return (uintptr_t)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__) && defined(__linux__)
  return (uintptr_t)((ucontext_t*)context)->uc_mcontext.pc;
#else
  (void)context;
  return 0;
#endif
}

static void on_signal(int number, siginfo_t* info, void* context) {
  if (!running) {
    signal(number, SIG_DFL);
    return;
  }
  uintptr_t code = program_counter(context);
  char where[200];
  if (number == SIGILL || number == SIGTRAP) fail(code, "undefined: bounds, alignment or shift");
  if (number == SIGFPE) fail(code, "integer division by zero");
  if (describe_address((uintptr_t)info->si_addr, where, sizeof where)) {
    fail(code, "out of bounds or write to an input: %s", where);
  }
  fail(code, "invalid address %p", info->si_addr);
}

static void prepare_process() {
  if (rt.stacks) return;
  rt.stacks = (unsigned char*)mmap(nullptr, (size_t)STACK_BYTES * RT_MAX_THREADS,
                                   PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (int i = 0; i < RT_MAX_THREADS; ++i) {
    mprotect(rt.stacks + (size_t)i * STACK_BYTES, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE);
  }
  static unsigned char signal_stack[65536];
  stack_t stack = {};
  stack.ss_sp = signal_stack;
  stack.ss_size = sizeof signal_stack;
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP}) sigaction(number, &action, nullptr);
}

// Run a kernel over its grid. Returns 0, or 1 with a text at rt_error().
// order: 0 ascending, 1 descending, 2 random (lanes, simdgroups and groups).
extern "C" int rt_launch(rt_entry entry, const uint32_t grid[3], const uint32_t threadgroup[3],
                         int order, uint64_t seed, int checked, int allow_return) {
  prepare_process();
  rt.entry = entry;
  rt.checked = checked;
  rt.allow_return = allow_return;
  rt.error[0] = 0;
  rt.error_address = 0;
  random_state = seed * 0x9E3779B97F4A7C15u + 0x1234567u;
  uint32_t n_groups[3];
  for (int a = 0; a < 3; ++a) n_groups[a] = (grid[a] + threadgroup[a] - 1) / threadgroup[a];
  size_t total = (size_t)n_groups[0] * n_groups[1] * n_groups[2];
  int* indices = new int[total];
  fill_order(indices, (int)total, order);
  if (checked) checks_begin_launch();
  if (sigsetjmp(leave, 1) == 0) {
    running = 1;
    for (size_t i = 0; i < total; ++i) {
      uint32_t g = (uint32_t)indices[i];
      uint32_t at[3] = {g % n_groups[0], g / n_groups[0] % n_groups[1], g / n_groups[0] / n_groups[1]};
      arena_reset();
      prepare_group(grid, threadgroup, at, n_groups);
      if (checked) checks_begin_group();
      run_group(order);
    }
  }
  running = 0;
  delete[] indices;
  if (checked) checks_end_launch();
  if (!rt.error[0]) rt_padding_damaged();
  return rt.error[0] != 0;
}

extern "C" const char* rt_error(void) { return rt.error; }
extern "C" uintptr_t rt_error_address(void) { return rt.error_address; }

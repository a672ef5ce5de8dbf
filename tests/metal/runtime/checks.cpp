// The checked build: every memory access of a kernel object calls in here.
//
// Kernels are compiled with -fsanitize=thread for its instrumentation calls only, and this file
// supplies those calls. Each gives address, size and direction, so one function checks bounds,
// races, reads of unwritten memory and writes to inputs, and counts the bytes of each buffer.
// The calls of -fsanitize=alignment,shift,bounds are supplied here too.
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

// Who touched a byte last. Threads are numbered from 1 over the whole grid: 0 is nobody.
struct access_mark {
  uint32_t thread;  // 0: nobody
  uint32_t group;
  uint32_t epoch, simd_epoch;
};

struct cell {
  access_mark writer, reader;
  uint8_t initialised, atomic_write, atomic_read, several_readers;
};

static cell* arena_cells;

void checks_begin_launch() {
  if (!arena_cells) arena_cells = (cell*)calloc(ARENA_BYTES, sizeof(cell));
  for (int i = 0; i < rt.n_buffers; ++i) {
    buffer& b = rt.buffers[i];
    b.bytes_read = b.bytes_written = b.bytes_fetched = b.bytes_unwritten = 0;
    if (b.writable) {
      b.cells = (cell*)calloc(b.bytes + 1, sizeof(cell));
      if (b.initialised) for (size_t k = 0; k < b.bytes; ++k) b.cells[k].initialised = 1;
    }
    b.last_fetch = (uint32_t*)calloc(b.bytes + 1, sizeof(uint32_t));
  }
}

void checks_end_launch() {
  for (int i = 0; i < rt.n_buffers; ++i) {
    buffer& b = rt.buffers[i];
    if (b.writable) {
      for (size_t k = 0; k < b.bytes; ++k) b.bytes_unwritten += !b.cells[k].initialised;
    }
    free(b.cells);
    free(b.last_fetch);
    b.cells = nullptr;
    b.last_fetch = nullptr;
  }
}

void checks_begin_group() { memset(arena_cells, 0, sizeof(cell) * ARENA_BYTES); }

static bool races(const access_mark& before, const access_mark& now, bool both_atomic) {
  if (!before.thread || both_atomic) return false;
  if (before.group != now.group) return true;  // no order between groups of one launch
  if (before.thread == now.thread) return false;
  if (before.epoch != now.epoch) return false;
  bool same_simdgroup = (before.thread - 1) / RT_LANES == (now.thread - 1) / RT_LANES;
  return !(same_simdgroup && before.simd_epoch != now.simd_epoch);
}

static void report(uintptr_t code, const char* what, uintptr_t address, uint32_t other) {
  char where[200];
  if (!describe_address(address, where, sizeof where)) snprintf(where, sizeof where, "unknown memory");
  if (other) fail(code, "%s: %s, threads %u and %d", what, where, other - 1, rt.current);
  fail(code, "%s: %s, thread %d", what, where, rt.current);
}

static void check_cell(cell& c, const access_mark& now, bool write, bool atomic, uintptr_t address,
                       uintptr_t code) {
  if (!write && !c.initialised) report(code, "uninitialised read", address, 0);
  if (races(c.writer, now, atomic && c.atomic_write)) {
    report(code, write ? "race, write after write" : "race, read after write", address,
           c.writer.thread);
  }
  if (write) {
    if (races(c.reader, now, atomic && c.atomic_read)) {
      report(code, "race, write after read", address, c.reader.thread);
    }
    // Another reader of the same interval is as bad when the writer itself read last.
    if (c.several_readers && c.reader.group == now.group && c.reader.epoch == now.epoch &&
        c.reader.simd_epoch == now.simd_epoch && !(atomic && c.atomic_read)) {
      report(code, "race, write after read", address, c.reader.thread);
    }
    c.writer = now;
    c.initialised = 1;
    c.atomic_write = atomic;
  } else {
    bool same_interval = c.reader.thread && c.reader.group == now.group &&
                         c.reader.epoch == now.epoch && c.reader.simd_epoch == now.simd_epoch;
    c.several_readers = same_interval && (c.several_readers || c.reader.thread != now.thread);
    c.reader = now;
    c.atomic_read = atomic;
  }
}

static bool inside(uintptr_t address, const void* start, size_t bytes) {
  return address - (uintptr_t)start < bytes;
}

struct segment_search {
  uintptr_t address, code;
  bool found;
};

// Is the address in the same library as the code? Tables of the kernel's header lie there.
static int search_segments(dl_phdr_info* info, size_t, void* data) {
  segment_search& search = *(segment_search*)data;
  bool has_address = false, has_code = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    uintptr_t start = info->dlpi_addr + header.p_vaddr;
    has_address |= search.address - start < header.p_memsz;
    has_code |= search.code - start < header.p_memsz;
  }
  search.found |= has_address && has_code;
  return search.found;
}

void access_memory(uintptr_t address, unsigned bytes, bool write, bool atomic, uintptr_t code) {
  if (inside(address, rt.stacks, (size_t)STACK_BYTES * RT_MAX_THREADS)) return;
  if (inside(address, &rt, sizeof rt)) return;  // slots, positions, pointers
  const lane& me = rt.lanes[rt.current];
  const simdgroup& group = rt.groups[rt.current / RT_LANES];
  access_mark now = {me.position.thread_index_in_threadgroup + 1, rt.group_index, 0, 0};
  if (inside(address, arena_base(), ARENA_BYTES)) {
    if (!in_threadgroup_array(address, bytes)) report(code, "out of bounds", address, 0);
    now.epoch = rt.threadgroup_epoch;
    now.simd_epoch = group.threadgroup_epoch;
    cell* cells = arena_cells + (address - (uintptr_t)arena_base());
    for (unsigned i = 0; i < bytes; ++i) check_cell(cells[i], now, write, atomic, address + i, code);
    return;
  }
  for (int i = 0; i < rt.n_buffers; ++i) {
    buffer& b = rt.buffers[i];
    uintptr_t offset = address - (uintptr_t)b.data;
    if (offset >= b.bytes) continue;
    if (offset + bytes > b.bytes) report(code, "out of bounds", address, 0);
    if (write && !b.writable) report(code, "write to input", address, 0);
    (write ? b.bytes_written : b.bytes_read) += bytes;
    if (!write) {
      // A byte that the same simdgroup read last comes from its registers or cache.
      uint32_t who = rt.group_index * (RT_MAX_THREADS / RT_LANES) + (uint32_t)rt.current / RT_LANES + 1;
      for (unsigned k = 0; k < bytes; ++k) {
        if (b.last_fetch[offset + k] == who) continue;
        b.last_fetch[offset + k] = who;
        ++b.bytes_fetched;
      }
    }
    if (!b.writable) return;
    now.epoch = rt.device_epoch;
    now.simd_epoch = group.device_epoch;
    for (unsigned k = 0; k < bytes; ++k) {
      check_cell(b.cells[offset + k], now, write, atomic, address + k, code);
    }
    return;
  }
  segment_search search = {address, code, false};
  if (!write) dl_iterate_phdr(search_segments, &search);
  if (!search.found) report(code, write ? "out of bounds write" : "out of bounds", address, 0);
}

extern "C" {

void rt_atomic_load(const volatile void* address, void* value, unsigned bytes) {
  uintptr_t code = (uintptr_t)__builtin_return_address(0);
  if (rt.checked) access_memory((uintptr_t)address, bytes, false, true, code);
  memcpy(value, (const void*)address, bytes);
}

void rt_atomic_store(volatile void* address, const void* value, unsigned bytes) {
  uintptr_t code = (uintptr_t)__builtin_return_address(0);
  if (rt.checked) access_memory((uintptr_t)address, bytes, true, true, code);
  memcpy((void*)address, value, bytes);
}

// Bytes of buffer `index`: read, fetched (once per simdgroup in a row), written, never written.
void rt_traffic(int index, uint64_t counts[4]) {
  const buffer& b = rt.buffers[index];
  counts[0] = b.bytes_read;
  counts[1] = b.bytes_fetched;
  counts[2] = b.bytes_written;
  counts[3] = b.bytes_unwritten;
}

// The calls that g++ -fsanitize=thread makes.
#define ACCESS(name, bytes, write)                                                       \
  void __tsan_##name(void* address) {                                                    \
    access_memory((uintptr_t)address, bytes, write, false,                               \
                  (uintptr_t)__builtin_return_address(0));                               \
  }
#define ACCESSES(bytes)                     \
  ACCESS(read##bytes, bytes, false)         \
  ACCESS(write##bytes, bytes, true)         \
  ACCESS(unaligned_read##bytes, bytes, false) \
  ACCESS(unaligned_write##bytes, bytes, true) \
  ACCESS(volatile_read##bytes, bytes, false)  \
  ACCESS(volatile_write##bytes, bytes, true)
ACCESSES(1) ACCESSES(2) ACCESSES(4) ACCESSES(8) ACCESSES(16)

void __tsan_read_range(void* address, size_t bytes) {
  access_memory((uintptr_t)address, (unsigned)bytes, false, false, (uintptr_t)__builtin_return_address(0));
}
void __tsan_write_range(void* address, size_t bytes) {
  access_memory((uintptr_t)address, (unsigned)bytes, true, false, (uintptr_t)__builtin_return_address(0));
}
void __tsan_init(void) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// A struct copy that became a call is not instrumented by the compiler; the linker's --wrap leads
// it here.
void* __wrap_memcpy(void* target, const void* source, size_t bytes) {
  uintptr_t code = (uintptr_t)__builtin_return_address(0);
  access_memory((uintptr_t)source, (unsigned)bytes, false, false, code);
  access_memory((uintptr_t)target, (unsigned)bytes, true, false, code);
  return memmove(target, source, bytes);
}
void* __wrap_memmove(void* target, const void* source, size_t bytes) {
  return __wrap_memcpy(target, source, bytes);
}
void* __wrap_memset(void* target, int value, size_t bytes) {
  access_memory((uintptr_t)target, (unsigned)bytes, true, false, (uintptr_t)__builtin_return_address(0));
  return memset(target, value, bytes);
}

// The calls of -fsanitize=alignment,shift,bounds. Each begins with the source location.
struct source_location {
  const char* file;
  uint32_t line, column;
};

void __ubsan_handle_type_mismatch_v1(source_location* at, void* address) {
  char where[200] = "";
  describe_address((uintptr_t)address, where, sizeof where);
  fail(0, "misaligned or null access: %s, %s:%u:%u", where, at->file, at->line, at->column);
}
void __ubsan_handle_shift_out_of_bounds(source_location* at, uintptr_t, uintptr_t) {
  fail(0, "shift too far, %s:%u:%u", at->file, at->line, at->column);
}
void __ubsan_handle_out_of_bounds(source_location* at, uintptr_t index) {
  fail(0, "index %zd out of bounds, %s:%u:%u", (ssize_t)index, at->file, at->line, at->column);
}
}

// State shared by the parts of the runtime. One kernel runs at a time, on one OS thread.
#pragma once
#include "fiber.h"
#include "runtime.h"

enum lane_state { LANE_READY, LANE_AT_SIMD, LANE_AT_BARRIER, LANE_DONE };

struct lane {
  fiber context;
  lane_state state;
  const char* operation;  // where it waits
  int line;
  uint32_t n_exchanges;
  rt_position position;
};

struct simdgroup {
  rt_row rows[2];  // used in turn: a fast lane never overwrites what a slow one still reads
  uint32_t device_epoch, threadgroup_epoch;
};

struct buffer {
  unsigned char* data;
  size_t bytes;
  char name[64];
  int writable;
  int initialised;
  unsigned char* mapping;
  size_t mapped_bytes;
  struct cell* cells;          // checked build: one per byte of an output
  uint32_t* last_fetch;        // checked build: who read a byte last, for the traffic count
  uint64_t bytes_read, bytes_written, bytes_fetched, bytes_unwritten;
};

enum { MAX_BUFFERS = 31, STACK_BYTES = 65536, ARENA_BYTES = 1 << 18, ARENA_GAP = 64 };

struct runtime {
  fiber scheduler;
  lane lanes[RT_MAX_THREADS];
  simdgroup groups[RT_MAX_THREADS / RT_LANES];
  unsigned char* stacks;
  int n_lanes, current;
  uint32_t group_index, device_epoch, threadgroup_epoch;
  buffer buffers[MAX_BUFFERS];
  int n_buffers;
  int checked, allow_return;
  rt_entry entry;
  void* arguments[MAX_BUFFERS];
  char error[1024];
  uintptr_t error_address;
};

extern runtime rt;
extern "C" int rt_padding_damaged(void);
bool in_threadgroup_array(uintptr_t address, size_t bytes);

// Record the first error and go back to the scheduler; the kernel does not continue.
[[noreturn]] void fail(uintptr_t code_address, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// The threadgroup arena.
void arena_reset(void);
unsigned char* arena_base(void);
size_t arena_used(void);
// Name and offset of an address in a buffer or threadgroup array, or false.
bool describe_address(uintptr_t address, char* text, size_t bytes);

// Checked build.
void checks_begin_launch(void);
void checks_end_launch(void);
void checks_begin_group(void);
void access_memory(uintptr_t address, unsigned bytes, bool write, bool atomic, uintptr_t code);

// Buffers between forbidden pages, and the arena of threadgroup arrays.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

static size_t page_bytes() {
  static size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
  return bytes;
}

static const unsigned char PADDING = 0xA5;

// A buffer ends at a page border, up to the rest of 16 bytes: overruns fault at no cost.
extern "C" void* rt_buffer_add(size_t bytes, const char* name, int writable, int initialised) {
  if (rt.n_buffers == MAX_BUFFERS) return nullptr;
  buffer& b = rt.buffers[rt.n_buffers++];
  memset(&b, 0, sizeof b);
  size_t padded = (bytes + 15) & ~(size_t)15;
  size_t page = page_bytes();
  size_t body = (padded + page - 1) / page * page;
  b.mapped_bytes = body + 2 * page;
  b.mapping = (unsigned char*)mmap(nullptr, b.mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
                                   -1, 0);
  if (b.mapping == MAP_FAILED) return nullptr;
  if (body) mprotect(b.mapping + page, body, PROT_READ | PROT_WRITE);
  memset(b.mapping + page, PADDING, body);
  b.data = b.mapping + page + body - padded;
  b.bytes = bytes;
  b.writable = writable;
  b.initialised = initialised;
  snprintf(b.name, sizeof b.name, "%s", name);
  if (writable && !initialised) memset(b.data, 0xFF, bytes);
  return b.data;
}

// Inputs can only be read: a write faults.
extern "C" void rt_buffers_seal(void) {
  for (int i = 0; i < rt.n_buffers; ++i) {
    buffer& b = rt.buffers[i];
    rt.arguments[i] = b.data;
    size_t page = page_bytes();
    if (!b.writable) mprotect(b.mapping + page, b.mapped_bytes - 2 * page, PROT_READ);
  }
}

extern "C" void rt_buffers_free(void) {
  for (int i = 0; i < rt.n_buffers; ++i) munmap(rt.buffers[i].mapping, rt.buffers[i].mapped_bytes);
  rt.n_buffers = 0;
}

// Bytes around a buffer that somebody wrote to: short overruns that end before the page border.
extern "C" int rt_padding_damaged(void) {
  for (int i = 0; i < rt.n_buffers; ++i) {
    buffer& b = rt.buffers[i];
    unsigned char* first = b.mapping + page_bytes();
    unsigned char* last = b.mapping + b.mapped_bytes - page_bytes();
    for (unsigned char* p = first; p < last; ++p) {
      if (p == b.data) p += b.bytes;
      if (p < last && *p != PADDING) {
        snprintf(rt.error, sizeof rt.error, "wrote out of bounds: %s%+td (size %zu)", b.name,
                 p - b.data, b.bytes);
        return 1;
      }
    }
  }
  return 0;
}

struct array {
  size_t offset, bytes;
  const char* name;
};

enum { MAX_ARRAYS = 64 };
static array arrays[MAX_ARRAYS];
static size_t used, content;
static unsigned char* arena;

unsigned char* arena_base() {
  if (!arena) {
    size_t page = page_bytes();
    arena = (unsigned char*)mmap(nullptr, ARENA_BYTES + 2 * page, PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + page;
    mprotect(arena, ARENA_BYTES, PROT_READ | PROT_WRITE);
    memset(arena, 0xFF, ARENA_BYTES);
  }
  return arena;
}

size_t arena_used() { return used; }

extern "C" size_t rt_threadgroup_bytes(void) { return content; }

// NaN in float and half: a group never sees what the group before it left.
void arena_reset() {
  memset(arena_base(), 0xFF, used);
  memset(arrays, 0, sizeof arrays);
  used = content = 0;
}

extern "C" void* rt_threadgroup(int index, size_t bytes, size_t align, const char* name) {
  if (index >= MAX_ARRAYS) rt_fail("too many threadgroup arrays", 0);
  array& a = arrays[index];
  if (!a.name) {
    size_t start = (used + ARENA_GAP + align - 1) / align * align;
    if (start + bytes + ARENA_GAP > ARENA_BYTES) rt_fail("threadgroup memory exhausted", 0);
    a = {start, bytes, name};
    used = start + bytes + ARENA_GAP;
    content += bytes;
  }
  return arena_base() + a.offset;
}

bool describe_address(uintptr_t address, char* text, size_t bytes) {
  const intptr_t near = 1 << 16;
  uintptr_t base = (uintptr_t)arena_base();
  if (address >= base && address < base + ARENA_BYTES) {
    const array* best = nullptr;
    intptr_t distance = 0;
    for (const array& a : arrays) {
      if (!a.name) continue;
      intptr_t offset = (intptr_t)(address - base - a.offset);
      if (offset >= 0 && offset < (intptr_t)a.bytes) { best = &a; distance = offset; break; }
      if (offset >= (intptr_t)a.bytes && (!best || offset < distance)) { best = &a; distance = offset; }
    }
    if (!best) { snprintf(text, bytes, "threadgroup memory"); return true; }
    snprintf(text, bytes, "%s+%td (threadgroup, size %zu)", best->name, distance, best->bytes);
    return true;
  }
  const buffer* best = nullptr;
  intptr_t best_gap = near, offset = 0;
  for (int i = 0; i < rt.n_buffers; ++i) {
    const buffer& b = rt.buffers[i];
    intptr_t at = (intptr_t)(address - (uintptr_t)b.data);
    intptr_t gap = at < 0 ? -at : at < (intptr_t)b.bytes ? 0 : at - (intptr_t)b.bytes;
    if (gap < best_gap) { best = &b; best_gap = gap; offset = at; }
  }
  if (!best) return false;
  snprintf(text, bytes, "%s%+td (size %zu)", best->name, offset, best->bytes);
  return true;
}

// Is the whole range inside one threadgroup array? (checked build: the gaps are red zones)
bool in_threadgroup_array(uintptr_t address, size_t bytes) {
  uintptr_t base = (uintptr_t)arena_base();
  for (const array& a : arrays) {
    if (a.name && address >= base + a.offset && address + bytes <= base + a.offset + a.bytes) return true;
  }
  return false;
}

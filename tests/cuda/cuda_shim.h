// What the CUDA texts of this project use of CUDA C++, as ordinary C++: the names, and threads as
// fibers. One block runs at a time. A thread runs alone until it meets others: __syncthreads waits
// for the block, a shuffle or mma for the 32 threads of the warp.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __restrict__
#define __shared__ static // of a kernel's own arrays: one block runs at a time

using std::max;
using std::min;

struct uint2 { uint32_t x, y; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
struct dim3 { uint32_t x, y, z; };
typedef _Float16 __half;
struct alignas(4) __half2 { _Float16 x, y; };

inline dim3 threadIdx, blockIdx, blockDim, gridDim;

// ---- fibers

namespace emulated {

constexpr int WARP = 32, STACK_BYTES = 64 << 10, GUARD_BYTES = 4096;
constexpr uint8_t UNWRITTEN = 0xff; // as floats: NaN

struct Copy { uint8_t* to; const uint8_t* from; int n_bytes, n_zeroed; };
struct Thread {
  ucontext_t context;
  std::vector<Copy> copies; // asked for, not waited for
  bool is_done;
  int n_meetings;           // of its warp
};
struct Meeting { int n_waiting, number; };
struct Message { uint32_t words[8]; };

inline std::vector<Thread> threads;
inline std::vector<uint8_t> stacks;
inline std::vector<Meeting> warps;
inline std::vector<Message> messages[2];
inline Meeting block;
inline ucontext_t scheduler;
inline int current, n_alive, n_passed;
inline std::vector<uint8_t> shared;
inline uint8_t* shared_start;
inline const char* error;
inline std::function<void()> body;

inline void fail(const char* what) { if (!error) error = what; }
inline void yield() { swapcontext(&threads[current].context, &scheduler); }

inline void meet(Meeting& meeting, int n_expected) {
  int number = meeting.number;
  if (++meeting.n_waiting == n_expected) {
    meeting.n_waiting = 0;
    meeting.number++;
  } else {
    while (meeting.number == number) yield();
  }
  n_passed++;
}

// Send words to the other threads of the warp; returns the 32 messages. Valid up to the next call.
inline const Message* exchange(const Message& mine) {
  std::vector<Message>& all = messages[threads[current].n_meetings++ & 1];
  all[current] = mine;
  meet(warps[current / WARP], WARP);
  return &all[current / WARP * WARP];
}

inline void start() {
  body();
  threads[current].is_done = true;
  n_alive--;
  n_passed++;
  yield();
}

inline void run_block(int n_threads) {
  threads.resize(n_threads);
  stacks.resize(size_t(n_threads) * STACK_BYTES);
  warps.assign((n_threads + WARP - 1) / WARP, {});
  for (auto& m : messages) m.resize(n_threads);
  block = {};
  n_alive = n_threads;
  for (int i = 0; i < n_threads; i++) {
    Thread& t = threads[i];
    t.is_done = false;
    t.n_meetings = 0;
    t.copies.clear();
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = &stacks[size_t(i) * STACK_BYTES];
    t.context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&t.context, start, 0);
  }
  while (n_alive > 0 && !error) {
    int before = n_passed;
    for (current = 0; current < n_threads && !error; current++) {
      if (threads[current].is_done) continue;
      threadIdx = {uint32_t(current), 0, 0};
      swapcontext(&scheduler, &threads[current].context);
    }
    if (n_passed == before) fail("threads wait for each other at different places");
  }
}

// Returns an error text, or null.
inline const char* run(const int* grid, int n_threads, int shared_bytes, std::function<void()> kernel) {
  error = nullptr;
  body = std::move(kernel);
  gridDim = {uint32_t(grid[0]), uint32_t(grid[1]), uint32_t(grid[2])};
  blockDim = {uint32_t(n_threads), 1, 1};
  shared.resize(shared_bytes + GUARD_BYTES + 16);
  shared_start = shared.data() + (16 - reinterpret_cast<uintptr_t>(shared.data()) % 16) % 16;
  for (uint32_t z = 0; z < gridDim.z; z++)
    for (uint32_t y = 0; y < gridDim.y; y++)
      for (uint32_t x = 0; x < gridDim.x && !error; x++) {
        std::fill(shared.begin(), shared.end(), UNWRITTEN);
        blockIdx = {x, y, z};
        run_block(n_threads);
        for (int i = 0; i < GUARD_BYTES - 16; i++)
          if (shared_start[shared_bytes + i] != UNWRITTEN) fail("write past the end of shared memory");
      }
  return error;
}

inline float half_value(uint32_t bits) {
  uint16_t low = uint16_t(bits);
  _Float16 h;
  memcpy(&h, &low, 2);
  return float(h);
}

} // namespace emulated

// ---- functions of CUDA

inline void __syncthreads() { emulated::meet(emulated::block, emulated::n_alive); }

inline void __syncwarp() { emulated::meet(emulated::warps[emulated::current / emulated::WARP], emulated::WARP); }

template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int step) {
  static_assert(sizeof(T) == 4);
  if (mask != 0xffffffffu) emulated::fail("a shuffle of a part of a warp");
  emulated::Message mine{};
  memcpy(mine.words, &value, 4);
  const emulated::Message* all = emulated::exchange(mine);
  memcpy(&value, all[(threadIdx.x % 32) ^ step].words, 4);
  return value;
}

// Another thread's value; a lane outside the warp leaves the thread's own, as CUDA says of shuffles up.
template <class T>
T shuffled(uint32_t mask, T value, int lane) {
  static_assert(sizeof(T) == 4);
  if (mask != 0xffffffffu) emulated::fail("a shuffle of a part of a warp");
  emulated::Message mine{};
  memcpy(mine.words, &value, 4);
  const emulated::Message* all = emulated::exchange(mine);
  if (lane >= 0 && lane < 32) memcpy(&value, all[lane].words, 4);
  return value;
}
template <class T>
T __shfl_sync(uint32_t mask, T value, int lane) { return shuffled(mask, value, lane & 31); }
template <class T>
T __shfl_up_sync(uint32_t mask, T value, int step) {
  return shuffled(mask, value, int(threadIdx.x % 32) - step);
}

template <class T>
T __ldg(const T* p) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(T)) {
    emulated::fail("a read at an address that is not aligned");
    return T{};
  }
  return *p;
}

inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint32_t __float_as_uint(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
inline float __uint_as_float(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
inline int __float2int_rn(float f) {
  if (std::isnan(f)) return 0;
  if (std::fabs(f) >= 2147483648.0f) return f > 0 ? INT32_MAX : INT32_MIN;
  return int(std::nearbyintf(f));
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return uint32_t((uint64_t(high) << 32 | low) >> (shift & 31));
}
template <class T>
T atomicAdd(T* p, T value) {
  T before = *p;
  *p += value;
  return before;
}
inline int __popc(uint32_t x) { return __builtin_popcount(x); }

// Byte i of the result: the byte of b:a that bits 4 i .. 4 i + 2 of the selector name.
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  uint64_t bytes = uint64_t(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; i++)
    result |= uint32_t(bytes >> (8 * ((selector >> (4 * i)) & 7)) & 255) << (8 * i);
  return result;
}

inline __half __ushort_as_half(unsigned short u) { __half h; memcpy(&h, &u, 2); return h; }
inline unsigned short __half_as_ushort(__half h) { unsigned short u; memcpy(&u, &h, 2); return u; }
inline float __half2float(__half h) { return float(h); }
inline __half __float2half_rn(float f) { return __half(f); }
inline __half2 __float2half2_rn(float f) { return {__half(f), __half(f)}; }
inline __half2 __hadd2(__half2 a, __half2 b) {
  return {__half(float(a.x) + float(b.x)), __half(float(a.y) + float(b.y))};
}
inline __half2 __hmul2(__half2 a, __half2 b) {
  return {__half(float(a.x) * float(b.x)), __half(float(a.y) * float(b.y))};
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { // exact up to the one rounding
  return {__half(double(a.x) * double(b.x) + double(c.x)), __half(double(a.y) * double(b.y) + double(c.y))};
}
inline uint64_t __cvta_generic_to_shared(const void* p) {
  return uint64_t(static_cast<const uint8_t*>(p) - emulated::shared_start);
}

// ---- instructions of PTX: results first, then operands, as in the asm statement

inline int dot4(uint32_t a, uint32_t b, int sum, bool is_signed) {
  for (int i = 0; i < 4; i++) {
    uint8_t byte = uint8_t(b >> (8 * i));
    sum += int(int8_t(a >> (8 * i))) * (is_signed ? int(int8_t(byte)) : int(byte));
  }
  return sum;
}
inline void ptx_dp4a_s32_s32(int& d, uint32_t a, uint32_t b, uint32_t c) { d = dot4(a, b, int(c), true); }
inline void ptx_dp4a_s32_u32(int& d, uint32_t a, uint32_t b, uint32_t c) { d = dot4(a, b, int(c), false); }

// Both sources are a: the text names operand 1 twice.
inline void ptx_prmt_b32(uint32_t& d, uint32_t a, uint32_t selector) {
  d = 0;
  for (int i = 0; i < 4; i++) {
    uint32_t nibble = selector >> (4 * i) & 15, byte = a >> (8 * (nibble & 3)) & 255;
    if (nibble & 8) byte = byte & 128 ? 255 : 0;
    d |= byte << (8 * i);
  }
}

inline void ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(
    float& c0, float& c1, float& c2, float& c3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
    uint32_t b0, uint32_t b1) {
  const emulated::Message* all = emulated::exchange({{a0, a1, a2, a3, b0, b1}});
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  auto part = [](uint32_t pair, int k) { return emulated::half_value(pair >> (16 * (k & 1))); };
  auto a = [&](int m, int k) {
    return part(all[(m & 7) * 4 + (k & 7) / 2].words[(m >> 3) + 2 * (k >> 3)], k);
  };
  auto b = [&](int k, int n) { return part(all[n * 4 + (k & 7) / 2].words[4 + (k >> 3)], k); };
  float* sums[4] = {&c0, &c1, &c2, &c3};
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 16; k++) *sums[i] += a(g + 8 * (i >> 1), k) * b(k, 2 * t + (i & 1));
}

inline void mma_of_bytes(int* d, const uint32_t* operands, bool is_signed, const int* sums) {
  emulated::Message mine{};
  memcpy(mine.words, operands, 6 * 4);
  const emulated::Message* all = emulated::exchange(mine);
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int i = 0; i < 4; i++) {
    int row = g + 8 * (i >> 1), column = 2 * t + (i & 1), sum = sums[i];
    for (int k = 0; k < 32; k++) {
      uint32_t a = all[(row & 7) * 4 + (k & 15) / 4].words[(row >> 3) + 2 * (k >> 4)] >> (8 * (k & 3)) & 255;
      uint32_t b = all[column * 4 + (k & 15) / 4].words[4 + (k >> 4)] >> (8 * (k & 3)) & 255;
      sum += (is_signed ? int(int8_t(a)) : int(a)) * int(int8_t(b));
    }
    d[i] = sum;
  }
}
#define MMA_OF_BYTES(NAME, IS_SIGNED)                                                                    \
  inline void NAME(int& d0, int& d1, int& d2, int& d3, uint32_t a0, uint32_t a1, uint32_t a2,            \
                   uint32_t a3, uint32_t b0, uint32_t b1, int c0, int c1, int c2, int c3) {              \
    const uint32_t operands[6] = {a0, a1, a2, a3, b0, b1};                                               \
    const int sums[4] = {c0, c1, c2, c3};                                                                \
    int d[4];                                                                                            \
    mma_of_bytes(d, operands, IS_SIGNED, sums);                                                          \
    d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];                                                          \
  }
MMA_OF_BYTES(ptx_mma_sync_aligned_m16n8k32_row_col_s32_s8_s8_s32, true)
MMA_OF_BYTES(ptx_mma_sync_aligned_m16n8k32_row_col_s32_u8_s8_s32, false)

inline const uint8_t* block_row(const emulated::Message* all, int block, int row) {
  uint32_t at = all[8 * block + row].words[0];
  if (at % 16) emulated::fail("a block of a matrix that is not aligned");
  return emulated::shared_start + at;
}
inline void ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(
    uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, uint32_t from) {
  const emulated::Message* all = emulated::exchange({{from}});
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  uint32_t* out[4] = {&a, &b, &c, &d};
  for (int i = 0; i < 4; i++) memcpy(out[i], block_row(all, i, g) + 4 * t, 4);
}
inline void ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(
    uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, uint32_t from) {
  const emulated::Message* all = emulated::exchange({{from}});
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  uint32_t* out[4] = {&a, &b, &c, &d};
  for (int i = 0; i < 4; i++) {
    uint16_t pair[2];
    for (int j = 0; j < 2; j++) memcpy(&pair[j], block_row(all, i, 2 * t + j) + 2 * g, 2);
    *out[i] = pair[0] | uint32_t(pair[1]) << 16;
  }
}

// The bytes arrive when they are waited for, as late as the hardware may bring them.
inline void ptx_cp_async_cg_shared_global(uint32_t to, const void* from, int n_bytes) {
  auto* source = static_cast<const uint8_t*>(from);
  if (to % 16 || reinterpret_cast<uintptr_t>(source) % 16) return emulated::fail("a copy that is not aligned");
  emulated::threads[emulated::current].copies.push_back({emulated::shared_start + to, source, n_bytes, 16});
}
inline void ptx_cp_async_ca_shared_global(uint32_t to, const void* from) {
  auto* source = static_cast<const uint8_t*>(from);
  if (to % 4 || reinterpret_cast<uintptr_t>(source) % 4) return emulated::fail("a copy that is not aligned");
  emulated::threads[emulated::current].copies.push_back({emulated::shared_start + to, source, 4, 4});
}
inline void ptx_cp_async_commit_group() {}
inline void ptx_cp_async_wait_group() {
  auto& copies = emulated::threads[emulated::current].copies;
  for (const auto& c : copies) {
    memset(c.to, 0, c.n_zeroed);
    memcpy(c.to, c.from, c.n_bytes);
  }
  copies.clear();
}

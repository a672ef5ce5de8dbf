// hidden[slot, row] = weight[slot] * silu(gate[e] x) * (up[e] x), e = ids[slot], row of F; a slot is
// one of the K experts of one position, blockIdx.y. Tiles: 8 rows of gate over the same 8 of up.
// Template: K, F, N column blocks (even), PER_WARP of them a warp, SLOTS, HAS_CLAMP, CLAMP (its bits).
extern __shared__ uint4 decode_shared[];
constexpr int TILES_A_SLOT = F / 8, N_TILES = K * TILES_A_SLOT, GROUP = 12; // tiles between meetings
const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
uint32_t* shared_table = reinterpret_cast<uint32_t*>(decode_shared);
uint8_t* staged = reinterpret_cast<uint8_t*>(shared_table + Format::TABLE_WORDS);
uint8_t* slots = staged + N * COLUMN_BLOCK_BYTES + warp * SLOTS * Format::SLOT_BYTES;
float* partial = reinterpret_cast<float*>(
    staged + N * COLUMN_BLOCK_BYTES + n_warps * SLOTS * Format::SLOT_BYTES); // [GROUP][n_warps][16]
const Planes gate{gate_quants, gate_high, gate_scales, gate_factors};
const Planes up{up_quants, up_high, up_scales, up_factors};
const int position = blockIdx.y, first_tile = blockIdx.x, n_blocks = gridDim.x;

// Unit u: column block of this warp u % PER_WARP, of the tile u / PER_WARP of this block of threads.
auto ask = [&](int u, uint8_t* slot) {
  int tile = first_tile + u / PER_WARP * n_blocks, cb = warp + u % PER_WARP * n_warps;
  if (tile < N_TILES && cb < N) {
    int k = tile / TILES_A_SLOT, row = (tile - k * TILES_A_SLOT) * 8 + lane / 4;
    int64_t at = int64_t(ids[position * K + k]) * F + row;
    Format::copy(slot, gate, lane / 4, at, N, cb);
    Format::copy(slot, up, 8 + lane / 4, at, N, cb);
  }
  copies_commit();
};
#pragma unroll
for (int i = 0; i < SLOTS; i++) ask(i, slots + i * Format::SLOT_BYTES);
fill_table<Format>(table, shared_table);
for (int cb = warp; cb < N; cb += n_warps) {
  stage_block(x + (int64_t(position) * N + cb) * 256, staged + cb * COLUMN_BLOCK_BYTES);
}
__syncthreads();

Format::Digits digits(staged + min(warp, N - 1) * COLUMN_BLOCK_BYTES);
int unit = 0, slot_number = 0;
for (int group_tile = first_tile; group_tile < N_TILES; group_tile += GROUP * n_blocks) {
  for (int i = 0; i < GROUP && group_tile + i * n_blocks < N_TILES; i++) {
    float y[2] = {0.0f, 0.0f};
#pragma unroll
    for (int b = 0; b < PER_WARP; b++) {
      int cb = warp + b * n_warps;
      uint8_t* slot = slots + slot_number * Format::SLOT_BYTES;
      copies_wait<SLOTS - 1>();
      __syncwarp();
      if (cb < N) {
        if (PER_WARP > 1) digits = Format::Digits(staged + cb * COLUMN_BLOCK_BYTES);
        Format::product(slot, digits, shared_table, cb, y);
      }
      __syncwarp();
      ask(unit + SLOTS, slot);
      unit++;
      slot_number = slot_number + 1 == SLOTS ? 0 : slot_number + 1;
    }
    y[0] = sum_of_quad(y[0]);
    y[1] = sum_of_quad(y[1]);
    if (lane % 4 == 0) {
      partial[(i * n_warps + warp) * 16 + lane / 4] = y[0];
      partial[(i * n_warps + warp) * 16 + 8 + lane / 4] = y[1];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 8 * GROUP; i += blockDim.x) {
    int tile = group_tile + i / 8 * n_blocks, k = tile / TILES_A_SLOT;
    if (tile < N_TILES) {
      float g = 0.0f, u = 0.0f;
      for (int w = 0; w < n_warps; w++) {
        g += partial[(i / 8 * n_warps + w) * 16 + i % 8];
        u += partial[(i / 8 * n_warps + w) * 16 + 8 + i % 8];
      }
      if (HAS_CLAMP) {
        // not fminf and fmaxf: they would hide a NaN
        float clamp = __uint_as_float(CLAMP);
        g = g > clamp ? clamp : g;
        u = u > clamp ? clamp : u < -clamp ? -clamp : u;
      }
      int slot = position * K + k;
      out[int64_t(slot) * F + (tile - k * TILES_A_SLOT) * 8 + i % 8] =
          weights[slot] * (g / (1.0f + expf(-g))) * u;
    }
  }
  __syncthreads();
}

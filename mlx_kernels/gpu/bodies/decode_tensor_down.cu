// out[t, row] = sum over the K experts of position t of down[e] hidden[t, k], row of C, e = ids[t, k].
// The sums are added in a fixed order: equal bits in every run. blockIdx.y is the position.
// Template: K, C, N column blocks of an expert, PER_WARP of the K * N a warp, SLOTS.
extern __shared__ uint4 decode_shared[];
constexpr int N_TILES = C / 16, N_ALL = K * N, GROUP = 2; // tiles between meetings
const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
uint32_t* shared_table = reinterpret_cast<uint32_t*>(decode_shared);
uint8_t* staged = reinterpret_cast<uint8_t*>(shared_table + Format::TABLE_WORDS);
uint8_t* slots = staged + N_ALL * COLUMN_BLOCK_BYTES + warp * SLOTS * Format::SLOT_BYTES;
float* partial = reinterpret_cast<float*>(
    staged + N_ALL * COLUMN_BLOCK_BYTES + n_warps * SLOTS * Format::SLOT_BYTES); // [GROUP][n_warps][16]
const Planes planes{quants, high, scales, factors};
const int position = blockIdx.y, first_tile = blockIdx.x, n_blocks = gridDim.x;

auto ask = [&](int u, uint8_t* slot) {
  int tile = first_tile + u / PER_WARP * n_blocks, b = warp + u % PER_WARP * n_warps;
  if (tile < N_TILES && b < N_ALL) {
    int k = b / N, cb = b - k * N;
    int64_t at = int64_t(ids[position * K + k]) * C + tile * 16 + lane / 4;
    Format::copy(slot, planes, lane / 4, at, N, cb);
    Format::copy(slot, planes, 8 + lane / 4, at + 8, N, cb);
  }
  copies_commit();
};
#pragma unroll
for (int i = 0; i < SLOTS; i++) ask(i, slots + i * Format::SLOT_BYTES);
fill_table<Format>(table, shared_table);
for (int b = warp; b < N_ALL; b += n_warps) { // of one warp only: each reads what it has staged
  stage_block(hidden + (int64_t(position) * N_ALL + b) * 256, staged + b * COLUMN_BLOCK_BYTES);
}
if (Format::TABLE_WORDS > 0) __syncthreads();
__syncwarp();

int unit = 0, slot_number = 0;
for (int group_tile = first_tile; group_tile < N_TILES; group_tile += GROUP * n_blocks) {
  for (int i = 0; i < GROUP && group_tile + i * n_blocks < N_TILES; i++) {
    float y[2] = {0.0f, 0.0f};
#pragma unroll
    for (int p = 0; p < PER_WARP; p++) {
      int b = warp + p * n_warps;
      uint8_t* slot = slots + slot_number * Format::SLOT_BYTES;
      copies_wait<SLOTS - 1>();
      __syncwarp();
      if (b < N_ALL) {
        Format::Digits digits(staged + b * COLUMN_BLOCK_BYTES);
        Format::product(slot, digits, shared_table, b % N, y);
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
  for (int i = threadIdx.x; i < 16 * GROUP; i += blockDim.x) {
    int tile = group_tile + i / 16 * n_blocks;
    if (tile < N_TILES) {
      float sum = 0.0f;
      for (int w = 0; w < n_warps; w++) sum += partial[(i / 16 * n_warps + w) * 16 + i % 16];
      out[int64_t(position) * C + tile * 16 + i % 16] = sum;
    }
  }
  __syncthreads();
}

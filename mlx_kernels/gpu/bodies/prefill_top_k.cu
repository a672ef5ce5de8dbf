// out[t]: the indices of the K largest of scores[t], the lowest index first among equals, ascending.
// A block is a row. The K-th largest is found byte by byte, from the top, by counting; which of its
// equals are chosen follows from their order. sizes: N, at least K.
extern __shared__ int counts[]; // 256 of bytes, or of threads; 256 more; chosen byte, left to choose
const int n = sizes[0], thread = threadIdx.x;
const float* row = scores + int64_t(blockIdx.x) * n;
int* more = counts + 256;
int* found = counts + 512;
uint32_t threshold = 0, mask = 0;
int left = K;
for (int shift = 24; shift >= 0; shift -= 8) {
  counts[thread] = 0;
  __syncthreads();
  for (int i = thread; i < n; i += 256) {
    uint32_t key = sortable(row[i]);
    if ((key & mask) == threshold) atomicAdd(&counts[(key >> shift) & 255u], 1);
  }
  __syncthreads();
  int above = 0;
  for (int i = thread + 1; i < 256; i++) above += counts[i];
  if (above < left && left <= above + counts[thread]) { // one thread
    found[0] = thread;
    found[1] = left - above;
  }
  __syncthreads();
  threshold |= uint32_t(found[0]) << shift;
  mask |= 255u << shift;
  left = found[1];
}
// Each thread takes a run of the row; what lies before it is counted by the threads before.
const int n_each = (n + 255) / 256;
const int start = thread * n_each < n ? thread * n_each : n, stop = start + n_each < n ? start + n_each : n;
int n_above = 0, n_equal = 0;
for (int i = start; i < stop; i++) {
  uint32_t key = sortable(row[i]);
  n_above += key > threshold;
  n_equal += key == threshold;
}
__syncthreads();
counts[thread] = n_above;
more[thread] = n_equal;
__syncthreads();
n_above = n_equal = 0;
for (int i = 0; i < thread; i++) {
  n_above += counts[i];
  n_equal += more[i];
}
int32_t* to = out + int64_t(blockIdx.x) * K;
for (int i = start; i < stop; i++) {
  uint32_t key = sortable(row[i]);
  if (key > threshold || (key == threshold && n_equal < left))
    to[n_above + (n_equal < left ? n_equal : left)] = i;
  n_above += key > threshold;
  n_equal += key == threshold;
}

// Writes a sublayer's result y (+ z) [C] to the streams [4, C], which mix. mix: post [4], comb [4, 4]
// from stream (row) to stream (column). A group takes 64 columns of all streams.
threadgroup float values[256];
const int n_columns = sizes[0], group = int(threadgroup_position_in_grid.x);
{
  const int at = int(thread_position_in_threadgroup.x), stream = at >> 6, column = group * 64 + (at & 63);
  float result = y[column];
  if (HAS_SECOND) result += z[column];
  float value = mix[stream] * result;
  for (int a = 0; a < 4; a++) value += mix[4 + 4 * a + stream] * streams[a * n_columns + column];
  out[stream * n_columns + column] = value;
  values[at] = value;
}

// The streams [4, C] as they are. A group takes 64 columns of all streams.
threadgroup float values[256];
const int n_columns = sizes[0], group = int(threadgroup_position_in_grid.x);
{
  const int at = int(thread_position_in_threadgroup.x);
  values[at] = streams[(at >> 6) * n_columns + group * 64 + (at & 63)];
}

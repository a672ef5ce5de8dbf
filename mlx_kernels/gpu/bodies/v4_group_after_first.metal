// The first group does no rows.
const int group = int(threadgroup_position_in_grid.x) - 1;

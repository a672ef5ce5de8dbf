// Every group does rows.
const int group = int(threadgroup_position_in_grid.x);

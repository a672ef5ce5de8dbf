// Fibers: a stack of its own per thread of a group, and a switch between two stacks.
#pragma once
#include <stddef.h>

struct fiber {
  void* context;  // stack pointer, or the ucontext of the fallback
};

// Prepare `f` to run `start` (which never returns) on the given stack.
void fiber_prepare(fiber* f, void* stack, size_t bytes, void (*start)(void));
// Save the running state into `from`, continue `to`.
void fiber_switch(fiber* from, fiber* to);

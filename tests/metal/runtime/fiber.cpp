// The stack switch: callee-saved registers by hand on x86-64 and arm64, ucontext elsewhere.
// ucontext is some 25 times slower, because it saves the signal mask with a system call.
#include "fiber.h"

#include <stdint.h>

#if defined(__x86_64__) && !defined(RT_UCONTEXT)

extern "C" void rt_switch(void** save, void* load);
asm(R"(
.text
.globl rt_switch
.type rt_switch, @function
rt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size rt_switch, .-rt_switch
)");

void fiber_prepare(fiber* f, void* stack, size_t bytes, void (*start)(void)) {
  uintptr_t* top = (uintptr_t*)(((uintptr_t)stack + bytes) & ~(uintptr_t)15);
  *--top = 0;                 // keeps the stack misaligned by 8 at entry, as after a call
  *--top = (uintptr_t)start;  // what `ret` pops
  for (int i = 0; i < 6; ++i) *--top = 0;
  f->context = top;
}

void fiber_switch(fiber* from, fiber* to) { rt_switch(&from->context, to->context); }

#elif defined(__aarch64__) && !defined(RT_UCONTEXT)

#ifdef __APPLE__
#define SWITCH_SYMBOL "_rt_switch"
#else
#define SWITCH_SYMBOL "rt_switch"
#endif

extern "C" void rt_switch(void** save, void* load);
asm(".text\n.globl " SWITCH_SYMBOL "\n.p2align 2\n" SWITCH_SYMBOL R"(:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");

void fiber_prepare(fiber* f, void* stack, size_t bytes, void (*start)(void)) {
  uintptr_t* top = (uintptr_t*)(((uintptr_t)stack + bytes) & ~(uintptr_t)15);
  top -= 20;
  for (int i = 0; i < 20; ++i) top[i] = 0;
  top[11] = (uintptr_t)start;  // the link register
  f->context = top;
}

void fiber_switch(fiber* from, fiber* to) { rt_switch(&from->context, to->context); }

#else

#include <ucontext.h>

// Contexts are kept for the life of the process: one per fiber, and one for the scheduler.
static ucontext_t* context_of(fiber* f) {
  if (!f->context) f->context = new ucontext_t();
  return (ucontext_t*)f->context;
}

void fiber_prepare(fiber* f, void* stack, size_t bytes, void (*start)(void)) {
  ucontext_t* context = context_of(f);
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = bytes;
  context->uc_link = nullptr;
  makecontext(context, start, 0);
}

void fiber_switch(fiber* from, fiber* to) { swapcontext(context_of(from), context_of(to)); }

#endif

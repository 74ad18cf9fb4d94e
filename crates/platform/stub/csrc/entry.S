// The parts of the stub that must be exact to the instruction: the way back to the guest, the native
// futex wait, copies that may fault, clone.
#include "layout.h"

#define SYS_rt_sigreturn 15
#define SYS_clone 56
#define SYS_futex 202
#define UC_RIP 168                      // offset of rip in the host's struct ucontext

        .section .text.entry,"ax"
        jmp     zygote_main             // offset 0: entered by a zygote in its temporary place

        .balign 16
        syscall                         // STUB_INJECT: the ptrace platform has a stopped thread make a call here
        int3

        .text
// Signal restorer: rsp = &ucontext. Nothing but rsp is live, so that an interrupt that arrives in
// [stub_restorer, stub_restorer_end) is answered by starting again from the top.
        .globl  stub_restorer, stub_restorer_end
stub_restorer:
        mov     UC_RIP(%rsp),%rax
        movabs  $STUB_TEXT,%rcx
        sub     %rcx,%rax
        cmp     $STUB_TEXT_SIZE,%rax
        jb      1f                      // a nested handler returns into the stub: its business
        mov     %rsp,%rax
        and     $-STACK_SIZE,%rax
        cmpl    $0,Priv_pending(%rax)
        jne     2f
1:      mov     $SYS_rt_sigreturn,%eax
        syscall
stub_restorer_end:
        ud2
2:      mov     %rsp,%rdi
        call    stub_pending
        jmp     stub_restorer

// long stub_futex_wait(uaddr, op, val, timeout, uaddr2, val3): an interrupt that arrives in
// [stub_futex_begin, stub_futex_end) before the call is made aborts it with EINTR.
        .globl  stub_futex_wait, stub_futex_begin, stub_futex_end, stub_futex_abort
stub_futex_wait:
        mov     %rcx,%r10
        mov     %rsp,%rax
        and     $-STACK_SIZE,%rax
stub_futex_begin:
        cmpl    $0,Priv_pending(%rax)
        jne     stub_futex_abort
        mov     $SYS_futex,%eax
        syscall
stub_futex_end:
        ret
stub_futex_abort:
        mov     $-4,%rax
        ret

// Copies that may fault; a fault in [stub_copy_begin, stub_copy_end) continues at stub_copy_end.
// u64 stub_copy(dst, src, n): bytes NOT copied.
        .globl  stub_copy, stub_copy_begin, stub_copy_end
stub_copy:
        mov     %rdx,%rcx
stub_copy_begin:
        rep movsb
stub_copy_end:
        mov     %rcx,%rax
        ret

// u64 stub_copy_string(dst, src, n): copies up to and including a NUL; bytes NOT copied.
        .globl  stub_copy_string, stub_string_begin, stub_string_end
stub_copy_string:
        mov     %rdx,%rcx
        test    %rcx,%rcx
        jz      stub_string_end
stub_string_begin:
        movb    (%rsi),%al
        movb    %al,(%rdi)
        inc     %rsi
        inc     %rdi
        dec     %rcx
        test    %al,%al
        jz      stub_string_end
        test    %rcx,%rcx
        jnz     stub_string_begin
stub_string_end:
        mov     %rcx,%rax
        ret

// u32 stub_store(addr, value): 0, or 1 when it faulted.
        .globl  stub_store, stub_store_begin, stub_store_end
stub_store:
        mov     $1,%eax
stub_store_begin:
        movl    %esi,(%rdi)
        xor     %eax,%eax
stub_store_end:
        ret

// long stub_clone_thread(flags, stack, ctid): the child continues in stub_thread_start on its stack.
        .globl  stub_clone_thread
stub_clone_thread:
        mov     %rdx,%r10
        xor     %edx,%edx
        xor     %r8d,%r8d
        mov     $SYS_clone,%eax
        syscall
        test    %rax,%rax
        jz      1f
        ret
1:      xor     %ebp,%ebp
        call    stub_thread_start
        ud2

// Load the extended state of the frame, so that a thread cloned now inherits it.
        .globl  stub_load_xstate
stub_load_xstate:
        mov     $-1,%eax
        mov     $-1,%edx
        xrstor64 (%rdi)
        ret

// The first frame of a thread: the host builds it for this exception; stub_sigfault knows the address.
        .globl  stub_first_trap
stub_first_trap:
        ud2
        jmp     stub_first_trap

// Second stage of a zygote: stub_stage2(stack, args, entry).
        .globl  stub_jump
stub_jump:
        mov     %rdi,%rsp
        mov     %rsi,%rdi
        xor     %ebp,%ebp
        call    *%rdx
        ud2

        .section .note.GNU-stack,"",@progbits

// The parts of the stub that must be exact to the instruction: the way back to the guest, the native
// futex wait, copies that may fault, clone.
#include "layout.h"

#define SYS_rt_sigreturn 15
#define SYS_clone 56
#define UC_RIP 168                      // offset of rip in the host's struct ucontext

        .section .text.entry,"ax"
        jmp     zygote_main             // offset 0: entered by a zygote in its temporary place

        .balign 16
        syscall                         // STUB_INJECT: the ptrace platform has a stopped thread make a call here
        int3

        .balign 16
        lock cmpxchg %esi,(%rdi)        // STUB_CMPXCHG: likewise
        int3

// Rewritten call sites. In: r11 = the trampoline, rax = the call's number; rcx is free, everything else is the guest's,
// its flags and red zone included. The slot is found through %gs, which holds its address unless the guest uses %gs
// itself; then the high half of the base differs (0x7ffe otherwise), and the call is made by signal.
// An interrupt in [stub_fast_entry, stub_known_end) starts the trampoline again (stub_sigintr), with the number and,
// from stub_known_begin on, the flags as stored. Later ones are noticed before the return.
#define SLOT(field) %gs:Slot_##field
#define REG(name) %gs:(Slot_regs + 8 * R_##name)
#define R_R15 0
#define R_R14 1
#define R_R13 2
#define R_R12 3
#define R_RBP 4
#define R_RBX 5
#define R_R11 6
#define R_R10 7
#define R_R9 8
#define R_R8 9
#define R_RAX 10
#define R_RCX 11
#define R_RDX 12
#define R_RSI 13
#define R_RDI 14
#define R_RIP 16
#define R_EFLAGS 17
#define R_RSP 18
        .balign 64
        .globl  stub_fast_entry, stub_number_begin, stub_known_begin, stub_known_end
stub_fast_entry:                        // STUB_FAST
        rdgsbase %rcx
        bswap   %rcx
        lea     0x1810000(%rcx),%ecx    // bswap(0x7ffe << 32) = 0xfe7f0000: zero, without touching the flags
        jrcxz   1f
        mov     TRAMP_FALLBACK(%r11),%rcx
        lea     (%r11,%rcx),%rcx
        jmp     *%rcx
1:      mov     %rax,REG(RAX)
stub_number_begin:
        lahf
        seto    %al
        mov     %eax,SLOT(flags)
stub_known_begin:
        mov     REG(RAX),%rax
        cmp     $KNOWN,%rax
        jae     2f
        mov     %gs:Slot_known(,%rax,8),%rax
        btr     $KNOWN_BIT,%rax
        jnc     2f
        mov     %rax,%rcx
        mov     SLOT(flags),%eax
        add     $0x7f,%al
        sahf
        mov     %rcx,%rax
        lea     TRAMP_BACK(%r11),%rcx
        jmp     *%rcx
stub_known_end:
2:      mov     SLOT(private),%rcx
        mov     %rsp,REG(RSP)
        lea     (STACK_SIZE - 64)(%rcx),%rsp
        mov     %r11,Priv_tramp(%rcx)
        mov     SLOT(flags),%eax
        add     $0x7f,%al
        sahf
        pushfq
        cld
        pop     %rax
        mov     %rax,REG(EFLAGS)
        mov     %rax,REG(R11)
        mov     TRAMP_RIP(%r11),%rax
        add     %r11,%rax
        mov     %rax,REG(RIP)
        mov     %rax,REG(RCX)
        mov     %rdi,REG(RDI)
        mov     %rsi,REG(RSI)
        mov     %rdx,REG(RDX)
        mov     %r10,REG(R10)
        mov     %r8,REG(R8)
        mov     %r9,REG(R9)
        mov     %rbx,REG(RBX)
        mov     %rbp,REG(RBP)
        mov     %r12,REG(R12)
        mov     %r13,REG(R13)
        mov     %r14,REG(R14)
        mov     %r15,REG(R15)
        mov     %rcx,%rdi
        rdgsbase %rsi
        xor     %ebp,%ebp
        call    stub_fast

        .macro  load_registers          // all but rcx and r11; flags stay
        mov     REG(RDI),%rdi
        mov     REG(RSI),%rsi
        mov     REG(RDX),%rdx
        mov     REG(R10),%r10
        mov     REG(R8),%r8
        mov     REG(R9),%r9
        mov     REG(RBX),%rbx
        mov     REG(RBP),%rbp
        mov     REG(R12),%r12
        mov     REG(R13),%r13
        mov     REG(R14),%r14
        mov     REG(R15),%r15
        mov     REG(RAX),%rax
        mov     REG(RSP),%rsp
        .endm

// The way back: registers from the slot, %gs and vector registers untouched. An interrupt in
// [stub_fast_exit, stub_fast_exit_end) is noted and starts it again from the top.
        .globl  stub_fast_exit, stub_fast_exit_end, stub_frame_trap
stub_fast_exit:
        mov     SLOT(private),%rcx
        cmpl    $0,Priv_pending(%rcx)
        jne     3f
        mov     Priv_tramp(%rcx),%r11
        mov     SLOT(flags),%eax
        add     $0x7f,%al
        sahf
        load_registers
        lea     TRAMP_BACK(%r11),%rcx
        jmp     *%rcx
stub_fast_exit_end:

// The way to another place than after the call, with all registers but rcx and r11, which are as a system call leaves them.
// As above.
        .globl  stub_fast_jump, stub_fast_jump_end
stub_fast_jump:
        mov     SLOT(private),%rcx
        cmpl    $0,Priv_pending(%rcx)
        jne     3f
        lea     (STACK_SIZE - 64)(%rcx),%rsp
        push    REG(EFLAGS)
        popfq
        mov     REG(R11),%r11
        load_registers
        mov     REG(RIP),%rcx
        jmp     *%rcx
stub_fast_jump_end:
3:      movl    $FRAME_RESUME,Priv_frame(%rcx)
// The host builds a frame for this exception, which holds the guest's extended state; stub_sigfault goes on from there.
// Not an invalid opcode: where the host is a virtual machine, its hypervisor looks at these first, for 10 us.
stub_frame_trap:
        hlt
        jmp     stub_frame_trap

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

// long stub_futex_wait(six arguments, nr), nr of a futex call: an interrupt that arrives in
// [stub_futex_begin, stub_futex_end) before the call is made aborts it with EINTR.
        .globl  stub_futex_wait, stub_futex_begin, stub_futex_end, stub_futex_abort
stub_futex_wait:
        mov     %rcx,%r10
        mov     %rsp,%rax
        and     $-STACK_SIZE,%rax
stub_futex_begin:
        cmpl    $0,Priv_pending(%rax)
        jne     stub_futex_abort
        mov     8(%rsp),%eax
        syscall
stub_futex_end:
        ret
stub_futex_abort:
        mov     $-4,%rax
        ret

// Copies that may fault; a fault in [stub_copy_begin, stub_copy_end) continues at stub_copy_end.
// u64 stub_copy(dst, src, n): bytes NOT copied, rounded up a little. Short copies take fewer steps by words, and where the
// destination is just ahead of the source in its page `rep movsb` takes 30 times as long on some processors.
        .globl  stub_copy, stub_copy_begin, stub_copy_end
stub_copy:
        mov     %rdx,%rcx
        cmp     $256,%rcx
        jbe     1f
        mov     %edi,%eax
        sub     %esi,%eax
        and     $0xfff,%eax
        dec     %eax
        cmp     $63,%eax
        jb      1f
stub_copy_begin:
        rep movsb
        jmp     stub_copy_end
1:      cmp     $32,%rcx                // at a fault rcx must not be less than what is left
        jb      4f
        mov     (%rsi),%rax
        mov     8(%rsi),%rdx
        mov     16(%rsi),%r8
        mov     24(%rsi),%r9
        mov     %rax,(%rdi)
        mov     %rdx,8(%rdi)
        mov     %r8,16(%rdi)
        mov     %r9,24(%rdi)
        add     $32,%rsi
        add     $32,%rdi
        sub     $32,%rcx
        jmp     1b
4:      cmp     $8,%rcx
        jb      5f
        mov     (%rsi),%rax
        mov     %rax,(%rdi)
        add     $8,%rsi
        add     $8,%rdi
        sub     $8,%rcx
        jmp     4b
5:      test    %rcx,%rcx
        jz      stub_copy_end
        movb    (%rsi),%al
        movb    %al,(%rdi)
        inc     %rsi
        inc     %rdi
        dec     %rcx
        jmp     5b
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

// u32 stub_swap(addr, old, new): 0 done, 1 faulted, 2 the bytes were others.
        .globl  stub_swap, stub_swap_begin, stub_swap_end
stub_swap:
        mov     %rsi,%rax
        mov     $1,%ecx
stub_swap_begin:
        lock cmpxchg %rdx,(%rdi)
        mov     $0,%ecx
        je      stub_swap_end
        mov     $2,%ecx
stub_swap_end:
        mov     %ecx,%eax
        ret

// u64 stub_cmpxchg(addr, old, new): what was there, or ~0 when it faulted.
        .globl  stub_cmpxchg, stub_cmpxchg_begin, stub_cmpxchg_end
stub_cmpxchg:
        mov     %esi,%eax
stub_cmpxchg_begin:
        lock cmpxchg %edx,(%rdi)
        mov     %eax,%eax
        ret
stub_cmpxchg_end:
        mov     $-1,%rax
        ret

// u32 stub_xsave(addr, mask): stores the extended state and resets it; 1 when it faulted. addr: a multiple of 64.
        .globl  stub_xsave, stub_xsave_begin, stub_xsave_end
stub_xsave:
        mov     %esi,%eax
        mov     %rsi,%rdx
        shr     $32,%rdx
        mov     $1,%ecx
stub_xsave_begin:
        xsave64 (%rdi)
        lea     initial_xstate(%rip),%rdi
        xrstor64 (%rdi)
        xor     %ecx,%ecx
stub_xsave_end:
        mov     %ecx,%eax
        ret

// u32 stub_xrstor(addr, mask): the other way.
        .globl  stub_xrstor, stub_xrstor_begin, stub_xrstor_end
stub_xrstor:
        mov     %esi,%eax
        mov     %rsi,%rdx
        shr     $32,%rdx
        mov     $1,%ecx
stub_xrstor_begin:
        xrstor64 (%rdi)
        xor     %ecx,%ecx
stub_xrstor_end:
        mov     %ecx,%eax
        ret

// No component in use; of the legacy area only MXCSR counts then.
        .section .rodata
        .balign 64
initial_xstate:
        .zero   24
        .long   0x1f80
        .zero   548
        .text

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
        hlt
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

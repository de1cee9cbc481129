//! A classic-BPF interpreter, as much of it as the filter uses, so that tests can ask the compiled program directly.

use libc::sock_filter;

/// Runs `program` over one call. The verdict, and how many instructions it took.
pub(super) fn run(program: &[sock_filter], arch: u32, nr: u32, args: &[u64; 6]) -> (u32, usize) {
    let mut data = Vec::new();
    data.extend(nr.to_ne_bytes());
    data.extend(arch.to_ne_bytes());
    data.extend(0u64.to_ne_bytes());
    args.iter().for_each(|arg| data.extend(arg.to_ne_bytes()));

    let (mut at, mut accumulator, mut steps) = (0usize, 0u32, 0);
    loop {
        let line = program[at];
        at += 1;
        steps += 1;
        let either = |yes: bool| usize::from(if yes { line.jt } else { line.jf });
        match line.code {
            0x20 => {
                let offset = usize::try_from(line.k).unwrap();
                assert_eq!(offset % 4, 0, "the kernel refuses unaligned loads");
                accumulator = u32::from_ne_bytes(data[offset..offset + 4].try_into().unwrap());
            }
            0x54 => accumulator &= line.k,
            0x05 => at += usize::try_from(line.k).unwrap(),
            0x15 => at += either(accumulator == line.k),
            0x35 => at += either(accumulator >= line.k),
            0x45 => at += either(accumulator & line.k != 0),
            0x06 => return (line.k, steps),
            other => panic!("instruction {other:#x} is not used by the filter"),
        }
    }
}

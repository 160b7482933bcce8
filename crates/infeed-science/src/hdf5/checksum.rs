//! The checksum after most metadata of newer files.

/// Bob Jenkins's `lookup3` with initial value 0: `hashlittle` of <https://burtleburtle.net/bob/c/lookup3.c>.
pub(super) fn lookup3(bytes: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
    let mut sum = [start; 3];
    // The last block, whole or not, is mixed in another way; an empty input is not mixed.
    let mut rest = bytes;
    while let Some((block, behind)) = rest.split_first_chunk::<12>().filter(|(_, behind)| !behind.is_empty()) {
        add(&mut sum, block);
        mix(&mut sum);
        rest = behind;
    }
    if !rest.is_empty() {
        let mut block = [0; 12];
        block[..rest.len()].copy_from_slice(rest);
        add(&mut sum, &block);
        last(&mut sum);
    }
    sum[2]
}

fn add(sum: &mut [u32; 3], block: &[u8; 12]) {
    let (words, _) = block.as_chunks::<4>();
    sum.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(u32::from_le_bytes(*word)));
}

fn mix([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: &mut u32, z: &mut u32, bits| {
        *x = x.wrapping_sub(*z) ^ z.rotate_left(bits);
        *z = z.wrapping_add(*y);
    };
    step(a, b, c, 4);
    step(b, c, a, 6);
    step(c, a, b, 8);
    step(a, b, c, 16);
    step(b, c, a, 19);
    step(c, a, b, 4);
}

fn last([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: u32, bits| *x = (*x ^ y).wrapping_sub(y.rotate_left(bits));
    step(c, *b, 14);
    step(a, *c, 11);
    step(b, *a, 25);
    step(c, *b, 16);
    step(a, *c, 4);
    step(b, *a, 14);
    step(c, *b, 24);
}

#[cfg(test)]
mod tests {
    use super::lookup3;

    #[test]
    fn sums_are_those_of_the_reference() {
        // Results of `hashlittle` with initial value 0 that its source file lists.
        assert_eq!(lookup3(b""), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }
}

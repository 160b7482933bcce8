//! The instruction sets for which loops are compiled, and the choice between them at run time.

/// The instructions that a `Decoder` may use. Pixels have the same bits at each level.
///
/// ```
/// # let mut file = Vec::new();
/// # jpeg_encoder::Encoder::new(&mut file, 80).encode(&[120; 3 * 32 * 16], 32, 16, jpeg_encoder::ColorType::Rgb)?;
/// use infeed_jpeg::{Decoder, Level};
///
/// let plain = Decoder::new().level(Level::Portable).decode(&file)?;
/// assert_eq!(plain, Decoder::new().level(Level::Best).decode(&file)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// The best that this machine has: AVX2 or NEON. AVX-512 did not make these loops faster (photographs to pixels on
    /// a Zen 4: within 1 %).
    #[default]
    Best,
    /// What the compiler generates for every machine of this architecture.
    Portable,
}

impl Level {
    /// Whether AVX2 may be used and is available.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(super) fn avx2(self) -> bool {
        self == Self::Best && is_x86_feature_detected!("avx2")
    }

    /// Whether AVX2 and bit-manipulation instructions may be used and are available.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(super) fn bits(self) -> bool {
        self.avx2()
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
    }

    /// Whether PDEP may be used and is fast: before Zen 3, AMD had it in microcode, at 20 to 300 cycles.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(super) fn deposits(self) -> bool {
        static FAST: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
            use std::arch::x86_64::__cpuid;
            // SAFETY: every processor of this architecture has it. (Newer compilers know.)
            #[allow(unused_unsafe)]
            let (vendor, version) = unsafe { (__cpuid(0), __cpuid(1).eax) };
            let is_amd = [vendor.ebx, vendor.edx, vendor.ecx] == [*b"Auth", *b"enti", *b"cAMD"].map(u32::from_le_bytes);
            // The family, including the extended family.
            !is_amd || (version >> 8 & 15) + (version >> 20 & 255) >= 0x19
        });
        self.bits() && *FAST
    }
}

/// Compiles a loop for each level, under the loop's own name.
macro_rules! at_each_level {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) = $body:ident;)*) => {$(
        $(#[$doc])*
        $vis fn $name(level: $crate::simd::level::Level, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2($($arg: $ty),*) {
                $body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            if level.avx2() {
                // SAFETY: the processor has AVX2.
                return unsafe { avx2($($arg),*) };
            }
            let _ = level;
            $body($($arg),*)
        }
    )*};
}

pub(super) use at_each_level;

//! What to generate, after checks.

use crate::{
    args::{SynthArgs, SynthKind},
    failure::Failure,
};

/// What to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub kind: SynthKind,
    pub count: u64,
    pub classes: u64,
    pub seed: u64,
    /// Of volumes: voxels along each axis, and whether they are left uncompressed.
    pub side: u32,
    pub raw: bool,
}

impl Plan {
    pub(super) fn new(args: &SynthArgs) -> Result<Self, Failure> {
        let usage = |message: String| Err(Failure::Usage(message));
        let (default, most) = match args.kind {
            SynthKind::Imagenet | SynthKind::Tar => (1000, 1000),
            SynthKind::Caltech => (257, 257),
            SynthKind::Cifar10 => (10, 10),
            SynthKind::Cifar100 => (100, 100),
            SynthKind::Tiff => (10, 1000),
            SynthKind::Nrrd => (1, 1),
        };
        if args.kind != SynthKind::Tiff
            && let Some(option) = args.tiff.given()
        {
            return usage(format!("{option} is only for tiff; omit it for other kinds"));
        }
        if args.kind != SynthKind::Nrrd && (args.raw || args.side.is_some()) {
            return usage("--raw and --side are for nrrd".into());
        }
        let fixed = matches!(args.kind, SynthKind::Cifar10 | SynthKind::Cifar100);
        match args.classes {
            Some(n) if fixed && n != default => {
                return usage(format!("--classes: this format has {default} classes"));
            }
            Some(n) if n == 0 || n > most => return usage(format!("--classes: use 1 to {most}")),
            _ => {}
        }
        if args.count == 0 {
            return usage("--count: use 1 or more".into());
        }
        let wanted = args.classes.unwrap_or(default);
        // Readers would not see the class of an empty folder.
        let classes = if fixed { wanted } else { wanted.min(args.count) };
        Ok(Self {
            kind: args.kind,
            count: args.count,
            classes,
            seed: args.seed,
            side: args.side.unwrap_or(144),
            raw: args.raw,
        })
    }
}

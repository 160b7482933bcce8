//! The example's training, killed and started again.
//!
//! Here, since an example has no tests: its own code, on few pictures that are made up.
#[expect(dead_code, reason = "the example's command line")]
#[path = "../examples/cifar.rs"]
mod cifar;

use std::path::Path;

use cifar::{Trainer, loader};
use futures::StreamExt;
use infeed::{BatchStream, Loader};

const PICTURES: &str = "synthetic://?count=40&height=32&width=32&classes=10";
const STEPS: u64 = 12;

/// Losses of at most so many steps, each saved.
async fn learn(trainer: &mut Trainer, mut batches: BatchStream, steps: usize, file: &Path) -> cifar::Result<Vec<u32>> {
    let mut losses = Vec::new();
    while losses.len() < steps
        && let Some(batch) = batches.next().await
    {
        let mut batch = batch?;
        losses.push(trainer.learn(&mut batch)?.to_bits());
        trainer.save(file, batch.state())?;
    }
    Ok(losses)
}

async fn pictures() -> cifar::Result<Loader> {
    // Five batches in an epoch.
    loader(PICTURES, "train", 8).await
}

#[tokio::test]
async fn a_run_that_was_killed_goes_on_with_the_losses_it_would_have_had() -> cifar::Result<()> {
    let folder = tempfile::tempdir()?;
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    let epochs = 3;
    let all = learn(&mut Trainer::new(STEPS), pictures().await?.epochs(0..epochs), STEPS as usize, &whole).await?;
    assert_eq!(all.len(), STEPS as usize);

    let mut losses = learn(&mut Trainer::new(STEPS), pictures().await?.epochs(0..epochs), 5, &killed).await?;
    // All of it is gone but the file: at the end of an epoch, and twice in the middle of one.
    for more in [2, 2, 3] {
        let (mut trainer, loader) = (Trainer::new(STEPS), pictures().await?);
        let state = trainer.load(&killed)?;
        assert_eq!(trainer.step, losses.len() as u64);
        losses.extend(learn(&mut trainer, loader.resume_epochs(&state, ..epochs)?, more, &killed).await?);
    }
    assert_eq!(losses, all);
    let files: Vec<_> = folder.path().read_dir()?.collect::<Result<_, _>>()?;
    assert_eq!(files.len(), 2, "{files:?}");
    Ok(())
}

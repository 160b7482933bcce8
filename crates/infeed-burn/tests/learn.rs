//! The example, with few steps.

#[path = "../examples/cifar.rs"]
mod cifar;

use cifar::Training;

#[test]
fn a_run_that_is_killed_and_started_again_has_the_curve_of_one_that_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let run = |checkpoints, killed_after| {
        // Two epochs of 25 steps; checkpoints at 20, 25, 40 and 50.
        let url = "synthetic://?count=400&height=32&width=32&classes=10".to_owned();
        Training { url, batch_size: 16, epochs: 2, checkpoints, killed_after }.run().unwrap()
    };
    let whole = run(None, None);
    assert_eq!(whole.len(), 50);
    assert!(
        whole.iter().all(|loss| loss.is_finite()) && whole[25..].iter().sum::<f32>() < whole[..25].iter().sum(),
        "{whole:?}"
    );

    let kept = || Some(folder.path().to_owned());
    // In the first epoch, three steps behind a checkpoint; then in the second.
    assert_eq!(run(kept(), Some(23)), whole[..23]);
    assert_eq!(run(kept(), Some(22)), whole[20..42]);
    assert_eq!(run(kept(), None), whole[40..]);
    assert!(run(kept(), None).is_empty(), "it is over");
}

//! What a user meets when opening datasets.
use crate::support::store::Tracker;
#[test]
fn smoke() {
    let t = Tracker::holding([("a", "b")]);
    assert_eq!(t.requests(), 0);
}

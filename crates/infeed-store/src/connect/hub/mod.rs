//! `hf://`: datasets of the Hugging Face hub, through its plain HTTPS.
//!
//! ```text
//! hf://datasets/OWNER/NAME[@REVISION][/PATH]
//!   revision ─ GET /api/datasets/OWNER/NAME/revision/REVISION ─▶ a commit, once
//!   list     ─ GET /api/datasets/OWNER/NAME/tree/COMMIT/PATH  ─▶ names, sizes, hashes; page after page
//!   read     ─ GET /datasets/OWNER/NAME/resolve/COMMIT/FILE   ─▶ bytes, or the signed url of a storage, which is kept
//!                                                                until it is refused
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - **A branch moves.** It is looked up once, and all that follows names the commit: whoever pushes while others train
//!   changes nothing for them. The hash of a file, which the listing tells, is its ETag.
//! - **The token is the hub's alone.** Redirects are followed by hand: it goes along to the same scheme, host and port, and
//!   nowhere else. A page of a listing says where the next is; only its query is taken.
//! - **The hub says 401 for what is not there**, unless it knows who asks. What a refusal means is in `refusal.rs`.

mod name;
mod refusal;
mod store;
mod token;
mod tree;

pub(crate) use name::Repo;
pub(crate) use store::Hub;

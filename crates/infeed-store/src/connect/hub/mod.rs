//! `hf://`: datasets of the Hugging Face hub, over its HTTPS API.
//!
//! ```text
//! hf://datasets/OWNER/NAME[@REVISION][/PATH]
//!   revision ─ GET /api/datasets/OWNER/NAME/revision/REVISION ─▶ a commit, once
//!   list     ─ GET /api/datasets/OWNER/NAME/tree/COMMIT/PATH  ─▶ names, sizes, hashes; page after page
//!   read     ─ GET /datasets/OWNER/NAME/resolve/COMMIT/FILE   ─▶ bytes, or a storage's signed url, which is kept until
//!                                                                it is refused
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - **A branch moves.** It is looked up once, and all later requests name the commit, so a push during training
//!   changes nothing. The hash of a file, which the listing contains, is its ETag.
//! - **The token is only for the hub.** Redirects are followed by hand: the token is sent only to the same scheme, host
//!   and port. Of the link to the next page of a listing, only the query is used.
//! - **The hub answers 401 for a dataset that does not exist**, unless the request has a token. `refusal.rs` explains
//!   refusals.

mod name;
mod refusal;
mod store;
mod token;
mod tree;

pub(crate) use name::Repo;
pub(crate) use store::Hub;

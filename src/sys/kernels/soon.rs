//! What a kernel reads next.

use super::stream::fetch;

/// More lines than a core has on their way at a time, and still a small part of its nearest cache.
const MOST: usize = 8 << 10;

/// Asks for pixels that a kernel reads soon, if they are so few that it has read them before the machine sees where they go
/// on: 3 KB at a random place are 48 lines, of which the first ones are waited for. Changes nothing else.
pub fn reads_soon(pixels: &[u8]) {
    if pixels.len() <= MOST {
        fetch(pixels);
    }
}

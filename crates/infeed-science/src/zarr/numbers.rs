//! Numbers in metadata.

use serde_json::Value;

/// A list of whole numbers.
pub(super) fn numbers(value: &Value) -> Option<Vec<u64>> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

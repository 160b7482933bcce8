//! What `integration/gpu/dry.sh` asks of this binary: it runs the GPU kit on the mock GPU.

use crate::support::mock::mock_env;

#[test]
#[ignore = "proves nothing: tells dry.sh where the mock GPU is"]
#[expect(clippy::print_stdout, reason = "the script reads it")]
fn where_the_mock_gpu_is() {
    for (name, value) in mock_env().into_iter().flatten() {
        println!("mock {name}={value}");
    }
}

//! Crates that must not be built at all, or not for one of ours, however deep down.

use anyhow::Result;

use super::output_of;
use crate::workspace::cargo;

struct Ban {
    whose: &'static [&'static str],
    crate_name: &'static str,
    why: &'static str,
}

const BANS: [Ban; 4] = [
    Ban {
        whose: &["--workspace", "--edges", "normal,build,dev"],
        crate_name: "ring",
        why: "TLS is rustls on aws-lc-rs only; two back ends fight over the process's default",
    },
    Ban {
        whose: &["--workspace", "--edges", "normal,build,dev"],
        crate_name: "openssl-sys",
        why: "a Rust toolchain and a C compiler are all that a build needs",
    },
    Ban {
        whose: &["--workspace", "--edges", "normal,build,dev"],
        crate_name: "prost-build",
        why: "it needs protoc, and a Rust toolchain and a C compiler are all that a build needs",
    },
    Ban {
        whose: &["--package", "lockstep-core", "--edges", "normal,build"],
        crate_name: "tokio",
        why: "lockstep-core has no runtime, no IO and no clock",
    },
];

/// Asks for what is built, not for what `Cargo.lock` names: that also lists crates which only
/// appear behind features that nobody has turned on.
pub(super) fn problems() -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for Ban { whose, crate_name, why } in BANS {
        let listing = ["tree", "--all-features", "--prefix", "none", "--format", "{p}"];
        let built = output_of(cargo(listing.into_iter().chain(whose.iter().copied())))?;
        if is_built(&built, crate_name) {
            problems.push(format!(
                "{crate_name} must not be in `cargo tree {}`: {why}",
                whose.join(" ")
            ));
        }
    }
    Ok(problems)
}

fn is_built(listing: &str, crate_name: &str) -> bool {
    listing.lines().any(|line| line.split_whitespace().next() == Some(crate_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_banned_crate_is_found_by_its_whole_name() {
        assert!(is_built("rustls v0.23.46\nring v0.17.14 (*)\n", "ring"));
        assert!(!is_built("rustls v0.23.46\nstring-ring v1.0.0\nring-ring v1.0.0\n", "ring"));
    }
}

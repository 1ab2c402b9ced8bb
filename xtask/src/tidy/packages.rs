//! Our crates and what they are made of, as cargo tells it.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::output_of;
use crate::workspace::cargo;

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) license: Option<String>,
    pub(super) dependencies: Vec<Dependency>,
    /// `None` for crates of this workspace.
    pub(super) source: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Dependency {
    pub(super) name: String,
    /// `None` for what the crate itself is built on, else `dev` or `build`.
    pub(super) kind: Option<String>,
}

/// The crates of this workspace, and everybody else's that are built for them on this machine, with
/// all features. Crates for other systems would have to be downloaded first.
pub(super) fn ours_and_others() -> Result<(Vec<Package>, Vec<Package>)> {
    let words = ["metadata", "--format-version=1", "--all-features"];
    let metadata = output_of(cargo(words.into_iter().chain(["--filter-platform", "host-tuple"])))?;
    let metadata: Metadata =
        serde_json::from_str(&metadata).context("cannot understand `cargo metadata`")?;
    Ok(metadata.packages.into_iter().partition(|package| package.source.is_none()))
}

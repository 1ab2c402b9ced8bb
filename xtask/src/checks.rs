//! What has to hold for the repository besides its tests. Claims that the documentation makes
//! about commands belong here too.

use std::path::Path;

use anyhow::Result;

use crate::tidy;

pub(crate) fn run(root: &Path) -> Result<()> {
    tidy::run(root)
}

//! Libraries that a program finds by the folder of its own file (`$ORIGIN`), which the output is
//! to find too.

use std::path::{Path, PathBuf};

use atom_core::image::Image;

use crate::message::note;

/// The program, with the folder of its file in place of `$ORIGIN` if `output` will be in another
/// folder. In the same folder the output can be moved as the program can, together with the libraries.
///
/// The user is told if the output would not find the libraries.
pub fn keep(mut image: Image, output: &Path) -> Image {
    if !image.is_started_by_loader() || !image.uses_origin() {
        return image;
    }
    let Some(folder) = folder_of(&image.path.clone()) else {
        return image;
    };
    let target = match output.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if std::fs::canonicalize(target).is_ok_and(|target| target == folder) {
        return image;
    }
    if let Err(reason) = image.expand_origin(&folder) {
        note(&format!(
            "{} finds libraries by its own folder ($ORIGIN), and the output will look for them in \
             the folder in which it lies: {reason}; write it into {}",
            image.path.display(),
            folder.display()
        ));
    }
    image
}

/// The folder of the file to which a path leads, without symbolic links: where the loader finds the
/// running file by `/proc/self/exe`.
fn folder_of(file: &Path) -> Option<PathBuf> {
    let file = std::fs::canonicalize(file).ok()?;
    Some(file.parent()?.to_path_buf())
}

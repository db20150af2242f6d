//! Root folders of Debian's releases: debootstrap makes each once, packages are added as they are needed, and commands
//! run inside.
//!
//! A program that runs in a root folder finds the release's libraries, and `atom` finds its loader. Needed are the user
//! root and Debian's package `debootstrap`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// Where the build's folder is seen in a root folder.
pub const BUILD: &str = "/opt/atom/release";

/// Where the folder of this crate is seen in a root folder.
pub const TESTS: &str = "/opt/atom/tests";

/// A release's root folder.
pub struct Root {
    folder: PathBuf,
}

/// Runs a command to its end.
///
/// # Errors
/// It cannot be run, or ends otherwise than with code 0.
pub fn must(doing: &'static str, command: &mut Command) -> Result<()> {
    let status = command.status();
    let status = status.map_err(|e| Error::new(doing, e).file(command.get_program()))?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::new(doing, format!("{command:?}: {status}")))
    }
}

/// The folder for root folders: the one that is given, or `roots` beside the build.
///
/// # Errors
/// The folder cannot be found.
pub fn folder(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(folder) => std::path::absolute(folder)
            .map_err(|e| Error::new("finding the folder", e).file(folder)),
        None => Ok(crate::cache::target_folder()?.join("roots")),
    }
}

impl Root {
    /// The root folder of a release below `roots`, made if there is none, with the release's present lists of packages.
    ///
    /// # Errors
    /// debootstrap or apt fails.
    pub fn of(suite: &str, roots: &Path) -> Result<Root> {
        let folder = roots.join(suite);
        if !folder.exists() {
            let fail = |e: std::io::Error| Error::new("making a root folder", e).file(&folder);
            // The folder gets its name when it is whole.
            let partial = roots.join(format!("{suite}.partial"));
            if partial.exists() {
                std::fs::remove_dir_all(&partial).map_err(fail)?;
            }
            std::fs::create_dir_all(&partial).map_err(fail)?;
            let mut debootstrap = Command::new("debootstrap");
            debootstrap.args(["--variant=minbase", suite]).arg(&partial);
            must("running debootstrap", debootstrap.stdout(Stdio::null()))?;
            std::fs::rename(&partial, &folder).map_err(fail)?;
        }
        let root = Root { folder };
        // A mirror may be after for weeks; what it has is still signed.
        let words = "apt-get update -qq -o Acquire::Check-Valid-Until=false";
        let mut update = root.command(words.split(' '))?;
        must(
            "reading the distribution's lists",
            update.stdout(Stdio::null()),
        )?;
        Ok(root)
    }

    /// A command inside the root folder. The build's folder, this crate's, the kernel's file systems and devices are
    /// mounted for the command alone.
    ///
    /// # Errors
    /// The build's folder cannot be found.
    pub fn command(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Command> {
        let release = crate::cache::target_folder()?.join("release");
        let script = "set -e
            mkdir -p \"$0$BUILD\" \"$0$TESTS\"
            mount --bind \"$RELEASE\" \"$0$BUILD\"
            mount --bind \"$CRATE\" \"$0$TESTS\"
            mount -t proc proc \"$0/proc\"
            mount --rbind /dev \"$0/dev\"
            mount --rbind /sys \"$0/sys\"
            exec chroot \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "slave", "sh", "-c", script])
            .arg(&self.folder)
            .args(words);
        command
            .env_clear()
            .env(
                "PATH",
                "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
            )
            .env("RELEASE", release)
            .env("CRATE", env!("CARGO_MANIFEST_DIR"))
            .env("BUILD", BUILD)
            .env("TESTS", TESTS)
            .env("ATOM", format!("{BUILD}/atom"))
            .env("LC_ALL", "C.UTF-8")
            .env("HOME", "/root")
            .env("DEBIAN_FRONTEND", "noninteractive");
        Ok(command)
    }

    /// Installs those of the packages that the release has; answers the others.
    ///
    /// # Errors
    /// apt fails.
    pub fn install(&self, packages: &BTreeSet<String>) -> Result<Vec<String>> {
        let known = self.command(["apt-cache", "pkgnames"])?.output();
        let known = known.map_err(|e| Error::new("listing the distribution's packages", e))?;
        let known = String::from_utf8_lossy(&known.stdout);
        let known: BTreeSet<&str> = known.lines().collect();
        let (found, missing): (Vec<_>, Vec<_>) = packages
            .iter()
            .partition(|name| known.contains(name.as_str()));
        let words = ["apt-get", "install", "-qq", "-y", "--no-install-recommends"];
        let words = words
            .into_iter()
            .chain(found.into_iter().map(String::as_str));
        // Services must not be started by the installation.
        let policy = self.folder.join("usr/sbin/policy-rc.d");
        let fail = |e: std::io::Error| Error::new("forbidding services", e).file(&policy);
        std::fs::write(&policy, "#!/bin/sh\nexit 101\n").map_err(fail)?;
        must(
            "marking the file",
            Command::new("chmod").arg("755").arg(&policy),
        )?;
        let mut install = self.command(words)?;
        must("installing packages", install.stdout(Stdio::null()))?;
        Ok(missing.into_iter().cloned().collect())
    }
}

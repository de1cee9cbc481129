//! The allowlist of container engines as a filter in a file: for a peer that takes one, but brings none.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::{FdFlags, fcntl_setfd};

use crate::allowlist;
use crate::process::fed;

/// Where distributions put libseccomp's module for Python.
const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = include_str!("filter.py");

/// One that was compiled.
#[derive(Debug)]
pub(crate) struct Filter {
    file: PathBuf,
}

impl Filter {
    /// Compiles it, by the library that container engines use.
    pub(crate) fn compile(directory: &Path) -> io::Result<Self> {
        let file = directory.join("allowlist.bpf");
        let target = file.display().to_string();
        fed(&[PYTHON, "-c", SCRIPT, &target], allowlist::seccomp().to_string().as_bytes())?;
        Ok(Self { file })
    }

    /// Opens it for a program that is started next, which inherits it by its number.
    pub(crate) fn open(&self) -> io::Result<File> {
        let file = File::open(&self.file)?;
        fcntl_setfd(&file, FdFlags::empty())?;
        Ok(file)
    }
}

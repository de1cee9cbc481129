//! From what a box says about its files to what a caller hears. Pure.

use axum::http::StatusCode;
use blastbox_engine::FileError;
use blastbox_wire::agent::Fault;

/// Code, status and words of each fault. The codes are append-only.
const fn about(fault: Fault) -> (&'static str, u16, &'static str) {
    match fault {
        Fault::NotFound => ("file_not_found", 404, "there is no such file or directory in the box"),
        Fault::Exists => ("file_exists", 409, "there is something with that name already"),
        Fault::NotDirectory => {
            ("not_a_directory", 409, "that is no directory, or something on the way to it is none")
        }
        Fault::IsDirectory => ("is_a_directory", 409, "that is a directory"),
        Fault::NotRegular => {
            ("not_a_file", 409, "that is a pipe, a socket, a device or a file of the kernel")
        }
        Fault::NotPermitted => ("not_permitted", 403, "the user of the box may not do that"),
        Fault::NotEmpty => ("not_empty", 409, "the directory has something in it"),
        Fault::NoSpace => ("no_space", 507, "the disk of the box is full"),
        Fault::TooLarge => ("file_too_large", 413, "the file would be larger than the box allows"),
        Fault::Loop => ("too_many_links", 422, "too many links are on the way"),
        Fault::NameTooLong => ("name_too_long", 422, "the path, or a name in it, is too long"),
        Fault::BadPath => ("bad_path", 422, "the path is empty, has a zero byte, or names nothing"),
        Fault::CrossDevice => ("cross_device", 422, "the new name is on another file system"),
        Fault::ReadOnly => ("read_only", 403, "that can only be read"),
        Fault::Busy => ("file_busy", 409, "somebody holds it, or it changed meanwhile"),
        Fault::TooMany => ("too_many", 429, "too many operations, entries, bytes or watches at once"),
        Fault::BadArchive => {
            ("bad_archive", 422, "that is no tar archive, or it holds what is never unpacked")
        }
        Fault::Stopped => ("stopped", 409, "the operation was ended"),
        Fault::Failed => ("file_failed", 422, "the box could not do it"),
    }
}

/// The stable code.
pub(crate) const fn code(error: &FileError) -> &'static str {
    match error {
        FileError::Failed { fault, .. } => about(*fault).0,
        FileError::BoxEnded(_) => "gone",
    }
}

/// The status.
pub(crate) fn status(error: &FileError) -> StatusCode {
    match error {
        FileError::Failed { fault, .. } => {
            StatusCode::from_u16(about(*fault).1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        }
        FileError::BoxEnded(_) => StatusCode::CONFLICT,
    }
}

/// The sentence.
pub(crate) fn words(error: &FileError) -> String {
    match error {
        FileError::Failed { fault: Fault::Failed, errno } => {
            format!("{} (errno {errno})", about(Fault::Failed).2)
        }
        FileError::Failed { fault, .. } => about(*fault).2.to_owned(),
        FileError::BoxEnded(_) => "the box ended first".to_owned(),
    }
}

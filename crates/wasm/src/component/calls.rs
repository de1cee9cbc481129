//! `blastbox:host/calls`: how a component calls functions of the caller and has requests made, which no WASI has.
//!
//! The same two that modules have: JSON goes in and comes back, the component waits meanwhile, and what is offered is decided before it
//! begins. An error is JSON, too: why nothing was given.

use wasmtime::component::{Linker, WasmList, WasmStr};

use super::{Call, offer};
use crate::tools::{self, Answer};
use crate::wasi::{Guest, pay};
use blastbox_wire::limits::{HTTP_CALL, MAX_TOOL_INPUT, MAX_TOOL_NAME};

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    offer! { linker, "blastbox:host/calls@0.1.0";
        "call-tool" => |call, name: WasmStr, json: WasmStr| -> Result<String, String> {
            let (name, json) = (said(&mut call, &name, MAX_TOOL_NAME)?, said(&mut call, &json, MAX_TOOL_INPUT)?);
            let Answer { good, bytes } = tools::call_named(&mut call, &name, &json)?;
            if good { Ok(text(bytes)) } else { Err(text(bytes)) }
        }
        "fetch" => |call, request: WasmList<u8>| -> Result<Vec<u8>, String> {
            let request = start(request.as_le_slice(&call), MAX_TOOL_INPUT);
            let Answer { good, bytes } = tools::call_for(&mut call, HTTP_CALL.as_bytes(), &request)?;
            if good { Ok(bytes) } else { Err(text(bytes)) }
        }
    }
    Ok(())
}

/// A text, which is made UTF-8 whole before it is cut: that is work. What is passed on is paid for where it is.
fn said(call: &mut Call<'_>, text: &WasmStr, most: usize) -> wasmtime::Result<Vec<u8>> {
    let text = text.to_str(&*call)?;
    let (kept, length) = (start(text.as_bytes(), most), text.len());
    drop(text);
    pay(call, u64::try_from(length.saturating_sub(kept.len())).unwrap_or(u64::MAX))?;
    Ok(kept)
}

/// What the guest says, and of what is too long one byte too many: what is copied is no memory of the guest's, and in no budget.
fn start(said: &[u8], most: usize) -> Vec<u8> {
    said.get(..=most).unwrap_or(said).to_vec()
}

/// What the host wrote is JSON, and so is text.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

//! Messages: JSON as protobuf means it. The binary form becomes the same JSON before a service sees it.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::binary;
use super::error::{Code, RpcError};
use super::schema::Shape;
use crate::e2b::no::echo;

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Json,
    Proto,
}

impl Codec {
    pub(super) fn decode(self, shape: Shape, bytes: &[u8]) -> Result<Value, RpcError> {
        let bad = |why: String| RpcError::new(Code::InvalidArgument, format!("unmarshal message: {why}"));
        match self {
            Self::Json if bytes.is_empty() => {
                Err(bad("zero-length payload is not a valid JSON object".to_owned()))
            }
            Self::Json => {
                let value: Value =
                    serde_json::from_slice(bytes).map_err(|error| bad(echo(&error.to_string())))?;
                if value.is_object() {
                    Ok(without_nulls(value))
                } else {
                    Err(bad("not an object".to_owned()))
                }
            }
            Self::Proto => binary::decode(shape, bytes).map_err(|error| bad(error.to_string())),
        }
    }

    pub(super) fn encode(self, shape: Shape, message: &Value) -> Result<Vec<u8>, RpcError> {
        match self {
            Self::Json => Ok(message.to_string().into_bytes()),
            Self::Proto => Ok(binary::encode(shape, message)),
        }
    }
}

/// A field that is null is a field that is not there.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// What a service takes, from a message.
pub(crate) fn wanted<T: DeserializeOwned>(message: Value) -> Result<T, RpcError> {
    serde_json::from_value(message).map_err(|error| {
        RpcError::new(Code::InvalidArgument, format!("unmarshal message: {}", echo(&error.to_string())))
    })
}

/// What a service takes, from the bytes of a frame.
pub(crate) fn decoded<T: DeserializeOwned>(call: &super::Call, bytes: &[u8]) -> Result<T, RpcError> {
    wanted(call.codec.decode(call.takes, bytes)?)
}

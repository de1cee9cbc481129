//! A good answer: JSON with a status.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use serde::Serialize;

use crate::Trouble;

/// JSON with a status.
#[derive(Debug)]
pub(crate) struct Answer<T>(pub(crate) StatusCode, pub(crate) T);

impl<T> Answer<T> {
    pub(crate) fn ok(value: T) -> Self {
        Self(StatusCode::OK, value)
    }

    pub(crate) fn created(value: T) -> Self {
        Self(StatusCode::CREATED, value)
    }
}

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response<Body> {
        let Ok(text) = serde_json::to_vec(&self.1) else { return Trouble::Defect.into_response() };
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.0;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

//! `/metrics`, `/healthz` and `/readyz`.

use crate::board::Board;
use crate::metrics;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;
use tokio::net::TcpListener;

/// Where it listens unless told otherwise: the agent is in the host's network, where others listen
/// too, and what it tells is for the node's own scraper.
pub const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9810);

/// The server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// It listened, and then could not go on.
    #[error("the server of metrics and health ended")]
    Serve {
        /// Why.
        source: io::Error,
    },
}

impl HttpError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Listen { .. } => "free the port, or give the agent another one with --listen",
            Self::Serve { .. } => "it is tried again by itself; rails do not need it",
        }
    }
}

/// Listens; what comes is answered once [`serve`] runs.
///
/// # Errors
/// [`HttpError::Listen`].
pub async fn listen(address: SocketAddr) -> Result<TcpListener, HttpError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| HttpError::Listen { address, source })
}

/// Answers until the future is dropped.
///
/// # Errors
/// [`HttpError::Serve`].
pub async fn serve(listener: TcpListener, board: Board) -> Result<(), HttpError> {
    let served = axum::serve(listener, router(board)).await;
    served.map_err(|source| HttpError::Serve { source })
}

fn router(board: Board) -> Router {
    Router::new()
        .route("/metrics", get(tell_metrics))
        .route("/healthz", get(tell_health))
        .route("/readyz", get(tell_readiness))
        .with_state(board)
}

async fn tell_metrics(State(board): State<Board>) -> Response {
    match metrics::text(&board.values(Instant::now())) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::MEDIA_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Alive means that every loop turns; what they find is a matter of readiness.
async fn tell_health(State(board): State<Board>) -> Response {
    let late = board.late(Instant::now());
    if late.is_empty() {
        return "ok\n".into_response();
    }
    let words = format!("late: {}\n", late.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, words).into_response()
}

async fn tell_readiness(State(board): State<Board>) -> Response {
    let conditions = board.conditions();
    let ready = conditions.iter().all(|(_, holds, _)| *holds);
    let listed = conditions.into_iter().map(|(name, holds, reason)| {
        let body = serde_json::json!({"ok": holds, "reason": reason});
        (name.to_owned(), body)
    });
    let listed: serde_json::Map<String, serde_json::Value> = listed.collect();
    let body = serde_json::json!({"ready": ready, "conditions": listed});
    let code = match ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (code, kind, format!("{body}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::{CHAINED, CONDITIONS, REGISTERED};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    /// Status code, and the whole answer as text.
    async fn get(address: SocketAddr, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (code, answer)
    }

    #[tokio::test]
    async fn each_page_tells_what_the_board_says() {
        let board = Board::new();
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, board.clone()));

        let (code, answer) = get(address, "/readyz").await;
        assert_eq!(code, 503, "{answer}");
        assert!(answer.contains(r#""ready":false"#), "{answer}");
        for name in CONDITIONS {
            board.set(name, true, "fine");
        }
        assert_eq!(get(address, "/readyz").await.0, 200);
        board.set(CHAINED, false, "10-x.conflist cannot be used");
        let (code, answer) = get(address, "/readyz").await;
        assert_eq!(code, 503);
        assert!(answer.contains("10-x.conflist cannot be used"), "{answer}");

        assert_eq!(get(address, "/healthz").await.0, 200);
        board.beat("watch", Duration::from_secs(60));
        assert_eq!(get(address, "/healthz").await.0, 200);
        board.beat("garbage", Duration::ZERO);
        let (code, answer) = get(address, "/healthz").await;
        assert_eq!(code, 503);
        assert!(answer.contains("late: garbage"), "{answer}");

        let (code, answer) = get(address, "/metrics").await;
        assert_eq!(code, 200);
        assert!(answer.contains("application/openmetrics-text"), "{answer}");
        let line = format!("podrail_condition{{condition=\"{REGISTERED}\"}} 1.0");
        assert!(answer.contains(&line), "{answer}");
        assert_eq!(get(address, "/other").await.0, 404);

        let taken = listen(address).await.unwrap_err();
        assert_eq!(taken.to_string(), format!("cannot listen on {address}"));
        server.abort();
    }
}

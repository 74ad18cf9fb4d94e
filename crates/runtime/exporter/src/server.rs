//! The HTTP server.
//!
//! A connection is for one request, and has [`CONNECTION`] for it. There are no more than [`CONNECTIONS`] at a time, the
//! others wait in the socket's queue; no more than [`SCRAPES`] of them collect figures. Requests are read by hyper,
//! which bounds their heads.

use crate::{Filter, Listener};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long a connection may last.
const CONNECTION: Duration = Duration::from_secs(30);
/// How long a client may take to send the head of its request.
const HEAD: Duration = Duration::from_secs(5);
/// Most connections that are served at a time.
const CONNECTIONS: usize = 64;
/// Most requests that collect figures at a time.
const SCRAPES: usize = 8;
/// Longest body of a request in bytes.
const MAX_BODY: usize = 4096;

/// What the server tells.
pub trait Source: Send + Sync + 'static {
    /// The figures as text, those that the filter shows. May block.
    fn scrape(&self, filter: &Filter) -> Result<String, String>;
    /// Why figures cannot be collected, if they cannot. `root`: the state directory that the client expects, if it says so.
    fn check(&self, root: Option<&str>) -> Result<(), String>;
}

/// Answers requests until SIGTERM or SIGINT comes. `ready` is called once connections are accepted.
pub fn serve(
    listener: Listener,
    source: Arc<dyn Source>,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let server = Server {
            source,
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
            scrapes: Arc::new(Semaphore::new(SCRAPES)),
        };
        ready()?;
        tokio::select! {
            ended = server.accept(&listener) => ended,
            _ = term.recv() => Ok(()),
            _ = int.recv() => Ok(()),
        }
    });
    // A request that collects figures is not waited for.
    runtime.shutdown_background();
    served
}

#[derive(Clone)]
struct Server {
    source: Arc<dyn Source>,
    connections: Arc<Semaphore>,
    scrapes: Arc<Semaphore>,
}

type Answer = Response<Full<Bytes>>;

impl Server {
    async fn accept(&self, listener: &Listener) -> io::Result<()> {
        match listener {
            Listener::Tcp(socket) => {
                let socket = tokio::net::TcpListener::from_std(socket.try_clone()?)?;
                loop {
                    self.attend(async || Ok(socket.accept().await?.0)).await?;
                }
            }
            Listener::Unix(socket, _) => {
                let socket = tokio::net::UnixListener::from_std(socket.try_clone()?)?;
                loop {
                    self.attend(async || Ok(socket.accept().await?.0)).await?;
                }
            }
        }
    }

    /// Serves the next connection in a task of its own.
    async fn attend<C>(&self, next: impl AsyncFn() -> io::Result<C>) -> io::Result<()>
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let permit = self.connections.clone().acquire_owned().await.map_err(io::Error::other)?;
        let connection = match next().await {
            Ok(connection) => connection,
            Err(error) => {
                // Out of descriptors, or the client has left: the next one may fare better.
                log::warn!("metric server: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                return Ok(());
            }
        };
        let server = self.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let server = server.clone();
                async move { Ok::<_, Infallible>(server.answer(request).await) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(false).max_headers(64);
            let served = http.serve_connection(TokioIo::new(connection), service);
            match timeout(CONNECTION, served).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => log::debug!("metric server: a client: {error}"),
                Err(_) => log::debug!("metric server: a client took longer than {CONNECTION:?}"),
            }
            drop(permit);
        });
        Ok(())
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let reads = [Method::GET, Method::HEAD];
        let (methods, allowed): (&[Method], _) = match request.uri().path() {
            "/" | "/metrics" => (&reads, "GET, HEAD"),
            "/runsc-metrics/healthcheck" => (&[Method::GET, Method::HEAD, Method::POST], "GET, HEAD, POST"),
            _ => return plain(StatusCode::NOT_FOUND, "not found: the figures are at /metrics\n"),
        };
        if !methods.contains(request.method()) {
            let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
            answer.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static(allowed));
            return answer;
        }
        match request.uri().path() {
            "/metrics" => self.metrics(&request).await,
            "/" => plain(StatusCode::OK, "The figures are at /metrics.\n"),
            _ => self.health(request).await,
        }
    }

    async fn metrics(&self, request: &Request<Incoming>) -> Answer {
        let pattern = field(request.uri().query().unwrap_or_default(), "runsc-sandbox-metrics-filter");
        let filter = match Filter::new(&pattern.unwrap_or_default()) {
            Ok(filter) => filter,
            Err(error) => return plain(StatusCode::BAD_REQUEST, format!("{error}\n")),
        };
        let Ok(permit) = self.scrapes.clone().try_acquire_owned() else {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "too many requests at a time; try again\n");
        };
        let source = self.source.clone();
        let scraped = spawn_blocking(move || {
            let scraped = source.scrape(&filter);
            drop(permit);
            scraped
        });
        match scraped.await {
            Ok(Ok(text)) => {
                let mut answer = plain(StatusCode::OK, text);
                let kind =
                    hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                answer.headers_mut().insert(CONTENT_TYPE, kind);
                answer
            }
            Ok(Err(error)) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }

    async fn health(&self, request: Request<Incoming>) -> Answer {
        let asked = field(request.uri().query().unwrap_or_default(), "root");
        let body = match Limited::new(request.into_body(), MAX_BODY).collect().await {
            Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            Err(error) => return plain(StatusCode::BAD_REQUEST, format!("body: {error}\n")),
        };
        let root = asked.or_else(|| field(&body, "root"));
        match self.source.check(root.as_deref()) {
            Ok(()) => plain(StatusCode::OK, "OK\n"),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// A field of a form or of a query.
fn field(text: &str, name: &str) -> Option<String> {
    form_urlencoded::parse(text.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        assert_eq!(field("a=1&root=%2Frun%2Fx+y&b", "root").as_deref(), Some("/run/x y"));
        assert_eq!(field("", "root"), None);
    }
}

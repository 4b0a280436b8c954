//! What every command is given: the store, the namespace, and how to print.

use clinch::{Clinch, Connect};

use crate::args::Global;
use crate::failure::Failure;
use crate::output::Paint;

/// The global options, made ready for use.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    store: Option<String>,
    namespace: Option<String>,
    /// Print data as JSON.
    pub(crate) json: bool,
    /// Say nothing while waiting.
    pub(crate) quiet: bool,
    /// Colour for standard output.
    pub(crate) paint: Paint,
}

impl Context {
    pub(crate) fn new(global: Global) -> Self {
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        Self {
            store: given(global.store),
            namespace: given(global.namespace),
            json: global.json,
            quiet: global.quiet,
            paint: Paint::new(global.color),
        }
    }

    /// Opens the store.
    pub(crate) async fn connect(&self) -> Result<Clinch, Failure> {
        let mut connect = match &self.store {
            Some(url) => Connect::new(url),
            None => Connect::default_store(),
        };
        if let Some(namespace) = &self.namespace {
            connect = connect.namespace(namespace);
        }
        connect.open().await.map_err(|error| {
            let failure = Failure::from(error);
            match &self.store {
                Some(url) if is_redacted(url) => failure.with_advice(
                    "the URL's password is hidden (***): `clinch run` does not pass it on to its command",
                ),
                _ => failure,
            }
        })
    }

    /// The store's URL as it was given, with its secrets.
    pub(crate) fn store(&self) -> Option<&str> {
        self.store.as_deref()
    }

    /// The store as a child may see it: without secrets.
    pub(crate) fn shown_store(&self) -> String {
        match &self.store {
            Some(url) => clinch::redact(url),
            None => "sqlite:".to_owned(),
        }
    }

    /// The namespace in use.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("clinch")
    }
}

/// Whether a URL has been through `redact` and lost a secret there.
fn is_redacted(url: &str) -> bool {
    url.contains(":***@") || url.contains("=***")
}

//! What every command is given: the store, the namespace, and how to print.

use std::time::Duration;

use clinch::store::StoreUrl;
use clinch::{Clinch, Connect};

use crate::args::Global;
use crate::failure::Failure;
use crate::output::{Paint, complain, plain};

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
        self.connect_with(None).await
    }

    /// Opens the store, for a client that goes on for so long while the store cannot be reached.
    pub(crate) async fn connect_with(&self, patience: Option<Duration>) -> Result<Clinch, Failure> {
        let mut connect = match &self.store {
            Some(url) => Connect::new(url),
            None => Connect::default_store(),
        };
        if let Some(namespace) = &self.namespace {
            connect = connect.namespace(namespace);
        }
        if let Some(patience) = patience {
            connect = connect.patience(patience);
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

    /// For a command that takes a lock: refuses a store that excludes nobody, and says which file a
    /// relative path means. Two jobs with different working folders would not exclude each other.
    pub(crate) fn check_shared(&self) -> Result<(), Failure> {
        let url = self.store.as_deref().unwrap_or("sqlite:");
        let Ok(url) = url.parse::<StoreUrl>() else {
            // Opening it says what is wrong.
            return Ok(());
        };
        if url.scheme() == "memory" {
            return Err(Failure::usage(
                "a memory: store is inside this process: its locks exclude nobody",
            )
            .with_advice("use sqlite:PATH between processes of one machine, or a server's URL"));
        }
        if let (Some(file), false) = (relative_file(&url), self.quiet || self.json) {
            let path = url.path().unwrap_or_default();
            if !path.is_empty() {
                complain(&plain(&format!("clinch: sqlite:{path} is {file}")));
            }
        }
        Ok(())
    }

    /// The store as a child may see it: without secrets, and the same from every folder.
    pub(crate) fn shown_store(&self) -> String {
        let url = self.store.as_deref().unwrap_or("sqlite:");
        let file = url.parse::<StoreUrl>().ok();
        match file.and_then(|parsed| relative_file(&parsed)) {
            Some(file) => {
                let path = file
                    .replace('%', "%25")
                    .replace('?', "%3F")
                    .replace('#', "%23");
                let parameters = url.find('?').and_then(|at| url.get(at..));
                format!("sqlite:{path}{}", parameters.unwrap_or_default())
            }
            None => clinch::redact(url),
        }
    }

    /// The namespace in use.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("clinch")
    }
}

/// The absolute path of an embedded store's file, if its URL does not have it.
fn relative_file(url: &StoreUrl) -> Option<String> {
    if url.scheme() != "sqlite" || url.path().is_ok_and(|path| path.starts_with('/')) {
        return None;
    }
    let file = clinch::sqlite::file_of(url).ok()?;
    file.to_str().map(str::to_owned)
}

/// Whether a URL has been through `redact` and lost a secret there.
fn is_redacted(url: &str) -> bool {
    url.contains(":***@") || url.contains("=***")
}

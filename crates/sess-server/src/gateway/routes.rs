//! The one table of all that can be asked for: the way of a request, who may go it, and its
//! description in OpenAPI all come from here.

use std::{
    net::{IpAddr, SocketAddr},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, LazyLock},
};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, header},
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use sess_app::Access;
use sess_protocol::{
    events::{EventsPage, EventsQuery},
    messages::{HistoryPage, HistoryQuery},
    plans::{PlanBody, PlanQuery, PlanState, PlanView, ReviewBody},
    runs::{ListRuns, RunRow, Runs, WaitBody, Waited},
    search::{SearchPage, SearchQuery},
    sessions::{Agents, ListSessions, Row, Rows, SendAnswer, SendBody, SessionQuery, UploadQuery, Uploaded},
    tokens::{CreateToken, CreatedToken, LoggedIn, Login, Scope, TokenRow, Tokens},
    work::{WorkBoard, WorkSession},
};

use super::{errors::Problem, http, mcp_http, openapi, page, query, query::Query, state::State, ws};

/// A request on its way to its handler: where it came from and what it asks for are checked.
pub(super) struct Call {
    pub(super) state: Arc<State>,
    pub(super) peer: IpAddr,
    pub(super) query: Query,
    pub(super) request: Request,
    /// The parts of the path that have names, decoded.
    params: Vec<(&'static str, String)>,
    pub(super) body_bytes_max: usize,
}

impl Call {
    /// Returns a part of the path by the name that it has in the table.
    pub(super) fn param(&self, name: &str) -> &str {
        let found = self.params.iter().find(|(other, _)| *other == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

pub(super) type Answering = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;

/// Who may ask, together with what answers: what needs an [`Access`] cannot be had without one.
pub(super) enum Policy {
    /// Everybody. What stands here asks for a token by itself, or tells nothing.
    Open(fn(Call) -> Answering),
    /// Whoever has a token with this scope.
    Needs(Scope, fn(Call, Access) -> Answering),
}

/// The schema of a type, in a generator that collects them.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What a request has as its body.
pub(super) enum Takes {
    Nothing,
    Json(SchemaOf),
    /// JSON that may be left out.
    Maybe(SchemaOf),
    /// A file.
    File,
    /// What another protocol says.
    Frames,
}

/// What comes back when all is well.
pub(super) enum Gives {
    Nothing,
    Json(u16, SchemaOf),
    /// JSON, or events when they are asked for.
    JsonOrEvents(SchemaOf),
    Text,
    Page,
    /// What another protocol says.
    Frames,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    Usual,
    Upload,
}

pub(super) struct Route {
    pub(super) method: Method,
    /// With `{names}` for the parts that vary.
    pub(super) path: &'static str,
    /// A sentence that says what it does.
    pub(super) about: &'static str,
    pub(super) query: Option<SchemaOf>,
    pub(super) takes: Takes,
    pub(super) gives: Gives,
    pub(super) policy: Policy,
    size: Size,
    /// The parameters that `query` has.
    parameters: Vec<String>,
    /// Those of them that are lists.
    lists: Vec<String>,
}

/// Answered to the very end: the process lives.
const HEALTHZ: &str = "/healthz";

pub(super) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let get = |path, about| Draft::new(Method::GET, path, about);
    let post = |path, about| Draft::new(Method::POST, path, about);
    let put = |path, about| Draft::new(Method::PUT, path, about);
    let delete = |path, about| Draft::new(Method::DELETE, path, about);
    let mut routes = vec![
        get("/", "The web page.").gives(Gives::Page).open(|call| page(&call, &page::INDEX)),
        get(page::SCRIPT.path, "Its script.").gives(Gives::Page).open(|call| page(&call, &page::SCRIPT)),
        get(page::STYLE.path, "Its style.").gives(Gives::Page).open(|call| page(&call, &page::STYLE)),
        get(page::ICON.path, "Its icon.").gives(Gives::Page).open(|call| page(&call, &page::ICON)),
        get(HEALTHZ, "Tells whether the process lives.")
            .gives(Gives::Text)
            .open(|_| Box::pin(async { Ok("ok\n".into_response()) })),
        get("/readyz", "Tells whether it takes requests: no longer once it ends.")
            .gives(Gives::Text)
            .open(|call| Box::pin(http::readyz(call))),
        get("/metrics", "Counters, as Prometheus reads them.")
            .gives(Gives::Text)
            .needs(Scope::Read, |call, _| {
                Box::pin(async move { Ok(call.state.metrics.render().into_response()) })
            }),
        get("/openapi.json", "This description.")
            .gives(Gives::Json(200, |_| true.into()))
            .needs(Scope::Read, |_, _| Box::pin(async { Ok(http::json(&openapi::openapi())) })),
        post("/login", "Exchanges a one-time code, or a token, for the cookie of the page.")
            .takes::<Login>()
            .json::<LoggedIn>(200)
            .open(|call| Box::pin(http::tokens::login(call))),
        post("/logout", "Ends what the cookie of the page lets it do.")
            .open(|call| Box::pin(http::tokens::logout(call))),
        get("/tokens", "Lists tokens, without their secrets.")
            .json::<Tokens>(200)
            .needs(Scope::Admin, |call, access| Box::pin(http::tokens::list(call, access))),
        post("/tokens", "Makes a token that has no more rights than the one that asks; it is shown once.")
            .takes::<CreateToken>()
            .json::<CreatedToken>(201)
            .needs(Scope::Admin, |call, access| Box::pin(http::tokens::create(call, access))),
        delete("/tokens/{tokenId}", "Revokes a token: whoever uses it is cut off.")
            .json::<TokenRow>(200)
            .needs(Scope::Admin, |call, access| Box::pin(http::tokens::revoke(call, access))),
        get("/agents", "Lists the configured agents.")
            .json::<Agents>(200)
            .needs(Scope::Read, |call, access| Box::pin(http::agents(call, access))),
        get("/events", "Everything that happened, oldest first; with `follow=1` as a stream that goes on.")
            .query::<EventsQuery>()
            .gives(Gives::JsonOrEvents(schema_of::<EventsPage>))
            .needs(Scope::Read, |call, access| Box::pin(http::events(call, access))),
        get("/sessions", "Lists sessions, most recent activity first.")
            .query::<ListSessions>()
            .json::<Rows>(200)
            .needs(Scope::Read, |call, access| Box::pin(http::sessions::list(call, access))),
        get("/sessions/{sessionKey}", "Returns one session by its key or its id.")
            .query::<SessionQuery>()
            .json::<Row>(200)
            .needs(Scope::Read, |call, access| Box::pin(http::sessions::get(call, access))),
        get(
            "/sessions/{sessionKey}/history",
            "Returns a page of a transcript, oldest message first; with `follow=1` a stream that goes on.",
        )
        .query::<HistoryQuery>()
        .gives(Gives::JsonOrEvents(schema_of::<HistoryPage>))
        .needs(Scope::Read, |call, access| Box::pin(http::history::history(call, access))),
        post("/sessions/{sessionKey}/send", "Sends a message into a session, and waits for its reply.")
            .takes::<SendBody>()
            .json::<SendAnswer>(200)
            .needs(Scope::Write, |call, access| Box::pin(http::sessions::send(call, access))),
        get("/sessions/{sessionKey}/plan", "Returns a session's plan and its revisions.")
            .query::<PlanQuery>()
            .json::<PlanView>(200)
            .needs(Scope::Read, |call, access| Box::pin(http::plans::get(call, access))),
        put("/sessions/{sessionKey}/plan", "Writes a session's plan: a new revision.")
            .takes::<PlanBody>()
            .json::<PlanState>(200)
            .upload()
            .needs(Scope::Write, |call, access| Box::pin(http::plans::put(call, access))),
        post("/sessions/{sessionKey}/plan/review", "Says what the person thinks of a plan.")
            .takes::<ReviewBody>()
            .json::<PlanState>(200)
            .needs(Scope::Review, |call, access| Box::pin(http::plans::review(call, access))),
        get("/search", "Finds messages in the sessions of all agents, newest first.")
            .query::<SearchQuery>()
            .json::<SearchPage>(200)
            .needs(Scope::Read, |call, access| Box::pin(http::search::search(call, access))),
        get("/runs", "Lists runs, newest first.")
            .query::<ListRuns>()
            .json::<Runs>(200)
            .needs(Scope::Read, |call, access| Box::pin(http::runs::list(call, access))),
        get("/runs/{runId}", "Returns one run.")
            .json::<RunRow>(200)
            .needs(Scope::Read, |call, access| Box::pin(http::runs::get(call, access))),
        post("/runs/{runId}/wait", "Waits until a run has ended, or the time is over.")
            .maybe::<WaitBody>()
            .json::<Waited>(200)
            .needs(Scope::Read, |call, access| Box::pin(http::runs::wait(call, access))),
        post("/runs/{runId}/cancel", "Asks a run to stop.")
            .json::<RunRow>(200)
            .needs(Scope::Write, |call, access| Box::pin(http::runs::cancel(call, access))),
        get("/work", "Lists the work sessions of the repository that the gateway was started in.")
            .json::<WorkBoard>(200)
            .needs(Scope::Read, |call, access| Box::pin(http::work::board(call, access))),
        get("/work/{slug}", "Returns one work session: its plan, its worklog, who had it.")
            .json::<WorkSession>(200)
            .needs(Scope::Read, |call, access| Box::pin(http::work::session(call, access))),
        post("/attachments", "Takes a file that `chat.send` then names. It is kept for some minutes.")
            .query::<UploadQuery>()
            .body(Takes::File)
            .json::<Uploaded>(201)
            .upload()
            .needs(Scope::Write, |call, access| Box::pin(http::attach(call, access))),
        // It says who it is in its first frame.
        get("/ws", "The WebSocket.").gives(Gives::Frames).open(ws::open),
    ];
    for method in [Method::POST, Method::GET, Method::DELETE] {
        let mcp = Draft::new(method.clone(), "/mcp", "MCP over Streamable HTTP.");
        let mcp = mcp.body(Takes::Frames).gives(Gives::Frames).upload();
        routes.push(mcp.needs(Scope::Read, |call, access| Box::pin(mcp_http::with_header(call, access))));
        // The token of a session is part of the address.
        let mcp =
            Draft::new(method, "/mcp/{mcpToken}", "The same, as the session that the token stands for.");
        let mcp = mcp.body(Takes::Frames).gives(Gives::Frames).upload();
        routes.push(mcp.open(|call| Box::pin(mcp_http::with_address(call))));
    }
    routes
});

fn page(call: &Call, file: &page::File) -> Answering {
    let answer = page::answer(file, call.request.headers());
    Box::pin(async { Ok(answer) })
}

/// Answers a request; `local` is where it arrived.
pub(super) async fn answer(
    state: &Arc<State>,
    local: SocketAddr,
    peer: SocketAddr,
    request: Request,
) -> Response {
    let busy = state.busy.token();
    // A panic told of itself when it happened, and costs this request alone.
    let answered = AssertUnwindSafe(dispatch(state, local, peer.ip(), request)).catch_unwind().await;
    let answered = answered.unwrap_or_else(|_| Err(Problem::internal()));
    drop(busy);
    let mut response = answered.unwrap_or_else(Problem::into_response);
    state.metrics.answered(response.status().as_u16());
    protect(response.headers_mut());
    response
}

/// Adds what every answer tells browsers.
pub(super) fn protect(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(nothing);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// Where from, who, what for, how large; and only then what it asks.
async fn dispatch(
    state: &Arc<State>,
    local: SocketAddr,
    peer: IpAddr,
    request: Request,
) -> Result<Response, Problem> {
    let checked = state.names.check(request.method(), request.uri(), request.headers(), local);
    checked.inspect_err(|_| state.metrics.refused_origins.add(1))?;

    let path = request.uri().path();
    if path != HEALTHZ {
        state.check_open()?;
    }
    let at_path: Vec<(&'static Route, Vec<(&'static str, &str)>)> =
        ROUTES.iter().filter_map(|route| Some((route, matched(route.path, path)?))).collect();
    // Who reads a page's head reads what its body would be about.
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let asked = at_path.iter().find(|(route, _)| route.method == *method);
    let access = match asked.map(|(route, _)| &route.policy) {
        Some(Policy::Open(_)) => None,
        // Also what is not there is told to nobody who has no token.
        None if at_path.iter().any(|(route, _)| matches!(route.policy, Policy::Open(_))) => None,
        Some(Policy::Needs(..)) | None => Some(state.admit(request.headers(), peer).await?),
    };
    let Some(&(route, ref params)) = asked else {
        if at_path.is_empty() {
            return Err(Problem::not_found(
                "there is nothing at this address; /openapi.json says what there is",
            ));
        }
        let methods: Vec<&str> = at_path.iter().map(|(route, _)| route.method.as_str()).collect();
        return Err(Problem::method(methods.join(", ")));
    };
    if let (Policy::Needs(scope, _), Some(access)) = (&route.policy, &access) {
        State::check_scope(access, *scope)?;
    }

    let params: Result<Vec<(&'static str, String)>, Problem> =
        params.iter().map(|&(name, text)| Ok((name, query::path_part(text, spoken(name))?))).collect();
    let params = params?;
    let query = match route.takes {
        Takes::Frames => Query::default(),
        _ => Query::parse(request.uri().query(), &route.parameters, &route.lists)?,
    };
    let body_bytes_max = match route.size {
        Size::Usual => state.limits.body_bytes,
        Size::Upload => state.limits.upload_bytes,
    };
    let call = Call { state: Arc::clone(state), peer, query, params, body_bytes_max, request };
    if let Err(problem) = http::check_body(&call, &route.takes) {
        http::waste(call).await;
        return Err(problem);
    }
    match (&route.policy, access) {
        (Policy::Open(handler), _) => handler(call).await,
        (Policy::Needs(_, handler), Some(access)) => handler(call, access).await,
        (Policy::Needs(..), None) => Err(Problem::unauthorized("a token is needed")),
    }
}

/// Compares a path with a row of the table; returns the parts that have names, as they came.
fn matched<'a>(pattern: &'static str, path: &'a str) -> Option<Vec<(&'static str, &'a str)>> {
    let mut parts = path.split('/');
    let mut named = Vec::new();
    for expected in pattern.split('/') {
        let part = parts.next()?;
        match expected.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) if !part.is_empty() => named.push((name, part)),
            None if expected == part => {}
            Some(_) | None => return None,
        }
    }
    if parts.next().is_some() { None } else { Some(named) }
}

/// Returns what a part of a path is called in a sentence.
fn spoken(name: &str) -> &str {
    match name {
        "sessionKey" => "session key",
        "runId" => "run id",
        "tokenId" => "token id",
        "mcpToken" => "token",
        other => other,
    }
}

/// A row of the table that lacks who may ask for it, and so is none yet.
struct Draft {
    method: Method,
    path: &'static str,
    about: &'static str,
    query: Option<SchemaOf>,
    takes: Takes,
    gives: Gives,
    size: Size,
}

impl Draft {
    fn new(method: Method, path: &'static str, about: &'static str) -> Self {
        Self {
            method,
            path,
            about,
            query: None,
            takes: Takes::Nothing,
            gives: Gives::Nothing,
            size: Size::Usual,
        }
    }

    fn query<T: JsonSchema>(self) -> Self {
        Self { query: Some(T::json_schema), ..self }
    }

    fn takes<T: JsonSchema>(self) -> Self {
        self.body(Takes::Json(schema_of::<T>))
    }

    fn maybe<T: JsonSchema>(self) -> Self {
        self.body(Takes::Maybe(schema_of::<T>))
    }

    fn body(self, takes: Takes) -> Self {
        Self { takes, ..self }
    }

    fn json<T: JsonSchema>(self, status: u16) -> Self {
        self.gives(Gives::Json(status, schema_of::<T>))
    }

    fn gives(self, gives: Gives) -> Self {
        Self { gives, ..self }
    }

    fn upload(self) -> Self {
        Self { size: Size::Upload, ..self }
    }

    fn open(self, handler: fn(Call) -> Answering) -> Route {
        self.with(Policy::Open(handler))
    }

    fn needs(self, scope: Scope, handler: fn(Call, Access) -> Answering) -> Route {
        self.with(Policy::Needs(scope, handler))
    }

    fn with(self, policy: Policy) -> Route {
        let Self { method, path, about, query, takes, gives, size } = self;
        let schema = query.map(|query| query(&mut openapi::generator()));
        let parameters = schema.as_ref().map(openapi::property_names).unwrap_or_default();
        let lists = schema.as_ref().map(openapi::list_names).unwrap_or_default();
        Route { method, path, about, query, takes, gives, policy, size, parameters, lists }
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

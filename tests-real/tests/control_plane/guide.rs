//! The example of docs/interceptors.md, followed word by word on a sandbox.
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use usher_tests_real::binaries;

const PATIENCE: Duration = Duration::from_secs(120);
const USHER: &str = "cargo run -p usher -- ";
const DATABASE: &str = "cargo run -p usher-interceptors --example database -- ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The commands that the guide gives for each shell, in its order.
fn shells() -> Vec<Vec<String>> {
    let guide = std::fs::read_to_string(root().join("docs/interceptors.md")).unwrap();
    let (_, section) = guide.split_once("\n## Try it\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(|block| block.lines().map(str::to_owned).collect()).collect()
}

/// What a reader of the guide has in the shell.
struct Reader {
    folder: Folder,
    path: std::ffi::OsString,
    /// The example interceptor.
    database: PathBuf,
}

/// A folder that goes when this does.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Reader {
    fn kubeconfig(&self) -> PathBuf {
        self.folder.0.join("kubeconfig")
    }

    /// Runs a line as it is written; only what is built already is not built again.
    fn types(&self, line: &str) -> Child {
        let line = line.replace(USHER, &format!("{} ", binaries::usher().unwrap().display()));
        let line = format!("exec {}", line.replace(DATABASE, &format!("{} ", self.database.display())));
        Command::new("sh")
            .args(["-c", &line])
            .current_dir(root())
            .env("PATH", &self.path)
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBECACHEDIR", self.folder.0.join("cache"))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    async fn reads(&self, line: &str) -> String {
        let output = tokio::time::timeout(PATIENCE, self.types(line).wait_with_output()).await.unwrap();
        let output = output.unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn output(of: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(of.stdout.take().unwrap()).lines()
}

/// Reads on to a line that has these words.
async fn says(lines: &mut Lines<BufReader<ChildStdout>>, words: &str) {
    let reading = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(words) {
                return;
            }
        }
        panic!("it ended without saying {words:?}");
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("nobody says {words:?}"));
}

#[tokio::test]
async fn the_example_of_the_guide_works_as_it_is_written() {
    let kubectl = usher_testbed::kubectl_path().await.unwrap();
    let mut path = kubectl.parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let folder = std::env::temp_dir().join(format!("usher-guide-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let reader = Reader { folder: Folder(folder), path, database: binaries::example("database").unwrap() };
    let [first, second, third] = &shells()[..] else { panic!("the guide has three shells") };

    let [sandbox] = &first[..] else { panic!("the first shell is the sandbox's: {first:?}") };
    let mut sandbox = reader.types(&format!("{sandbox} --kubeconfig {}", reader.kubeconfig().display()));
    says(&mut output(&mut sandbox), "export KUBECONFIG=").await;

    let [export, rollout, data, annotate, interceptor] = &second[..] else { panic!("{second:?}") };
    assert!(export.starts_with("export KUBECONFIG="), "{export}");
    reader.reads(rollout).await;
    reader.reads(data).await;
    reader.reads(annotate).await;
    let mut interceptor = reader.types(interceptor);
    let mut told = output(&mut interceptor);
    says(&mut told, "answering as db.example.com in namespace shop").await;

    let [_, evict, copy] = &third[..] else { panic!("{third:?}") };
    let followed = reader.reads(evict).await;
    assert!(followed.contains("db.example.com"), "the interceptor has its turn: {followed}");
    says(&mut told, "db-0: evicted").await;
    let copy = reader.reads(copy).await;
    assert!(copy.contains("customers: \"3\"") && copy.contains("stock: \"5\""), "{copy}");
}

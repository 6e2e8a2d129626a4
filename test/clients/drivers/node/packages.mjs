// The clients are beside the interpreter, outside of the tree: where scripts/tools installed both.
import { createRequire } from 'node:module'

export const load = createRequire(process.execPath)

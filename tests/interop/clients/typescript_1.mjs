// A client on the official TypeScript SDK, line 1.x: handshake revisions only.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CALL_TIMEOUT, serve } from './agent.mjs';

await serve(async endpoint => {
    const client = new Client({ name: 'interop-typescript-1', version: '1.0.0' });
    const transport = reach(endpoint);
    const protocol = negotiated(transport);
    await client.connect(transport, { timeout: CALL_TIMEOUT });
    return {
        server: () => ({ protocol: protocol(), greeting: null }),
        listTools: () => client.listTools(undefined, { timeout: CALL_TIMEOUT }),
        call: (name, args, _meta) =>
            client.callTool({ name, arguments: args, _meta }, undefined, { timeout: CALL_TIMEOUT }),
        close: () => client.close()
    };
});

function reach(endpoint) {
    if (endpoint.command) {
        const [command, ...args] = endpoint.command;
        return new StdioClientTransport({ command, args });
    }
    return new StreamableHTTPClientTransport(new URL(endpoint.url), { requestInit: { headers: endpoint.headers } });
}

// This line of the SDK tells the negotiated revision to its transport only.
function negotiated(transport) {
    let version = null;
    const inner = transport.setProtocolVersion?.bind(transport);
    transport.setProtocolVersion = told => {
        version = told;
        inner?.(told);
    };
    return () => version;
}
